"""The authored models are what they say: the same bytes every time, and runnable on the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from reference_kernels import reference_interpreter, reference_outputs

from edgeplace.testing.models import AUTHORED, NOT_RUNNABLE, random_graph


@pytest.mark.parametrize("name", sorted(set(AUTHORED) - NOT_RUNNABLE))
def test_runs_on_reference_kernels(name: str) -> None:
    content = AUTHORED[name]()
    assert content == AUTHORED[name]()
    for outputs in reference_outputs(content):
        for output in outputs:
            assert output.dtype.kind not in "fc" or np.isfinite(output).all()


@pytest.mark.parametrize("name", ["svdf_state", "lstm_state", "resource_variables"])
def test_state_lives_from_one_invocation_to_the_next(name: str) -> None:
    content = AUTHORED[name]()
    same_input = np.random.default_rng(1)
    interpreter = reference_interpreter(content)
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
        assert all(np.isfinite(output).all() for output in reference_outputs(random_graph(seed), 1)[0])
