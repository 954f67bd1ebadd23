"""The authored models are what they say: the same bytes every time, and runnable on the reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from edgeplace.testing.models import AUTHORED, NOT_RUNNABLE, random_graph


def run(content: bytes, steps: int = 2) -> list[list[Any]]:
    """Outputs of some invocations on seeded inputs, reference kernels."""
    interpreter = Interpreter(
        model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    interpreter.allocate_tensors()
    random = np.random.default_rng(0)
    results = []
    for step in range(steps):
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], _value(detail, random, step))
        interpreter.invoke()
        results.append([interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()])
    return results


def _value(detail: dict[str, Any], random: np.random.Generator, step: int) -> Any:
    if detail["dtype"] in (np.bytes_, np.object_):
        return np.array([b"yes", b"no", b"yes"])
    if detail["dtype"] == np.bool_:
        return np.array(step == 0)
    if detail["name"] == "target":
        return np.array([3, 4], np.int32)
    return random.standard_normal(detail["shape"]).astype(detail["dtype"])


@pytest.mark.parametrize("name", sorted(set(AUTHORED) - NOT_RUNNABLE))
def test_runs_on_reference_kernels(name: str) -> None:
    content = AUTHORED[name]()
    assert content == AUTHORED[name]()
    for outputs in run(content):
        for output in outputs:
            assert output.dtype.kind not in "fc" or np.isfinite(output).all()


@pytest.mark.parametrize("name", ["svdf_state", "lstm_state", "resource_variables"])
def test_state_lives_from_one_invocation_to_the_next(name: str) -> None:
    content = AUTHORED[name]()
    same_input = np.random.default_rng(1)
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    detail = interpreter.get_input_details()[0]
    value = same_input.standard_normal(detail["shape"]).astype(np.float32)
    seen = []
    for _ in range(2):
        interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        seen.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).copy())
    assert not np.array_equal(seen[0], seen[1])


def test_random_graphs_run_and_differ() -> None:
    contents = {random_graph(seed) for seed in range(40)}
    assert len(contents) == 40
    for seed in range(0, 40, 4):
        assert all(np.isfinite(output).all() for output in run(random_graph(seed), 1)[0])
