"""Models run in this process on the reference kernels, for tests of files that are known to be harmless."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

Arrays = list[Any]


def reference_interpreter(content: bytes) -> Interpreter:
    """An interpreter of the file, ready to run."""
    made = Interpreter(
        model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    made.allocate_tensors()
    return made


def reference_outputs(content: bytes, steps: int = 3) -> list[Arrays]:
    """Outputs of some invocations, one after the other, on seeded inputs."""
    made = reference_interpreter(content)
    random = np.random.default_rng(0)
    results = []
    for step in range(steps):
        for detail in made.get_input_details():
            made.set_tensor(detail["index"], _input(detail, random, step))
        made.invoke()
        results.append([made.get_tensor(detail["index"]).copy() for detail in made.get_output_details()])
    return results


def _input(detail: dict[str, Any], random: np.random.Generator, step: int) -> Any:
    if detail["dtype"] in (np.bytes_, np.object_):
        return np.array([b"yes", b"no", b"yes"])
    if detail["dtype"] == np.bool_:
        return np.array(step % 2 == 0)
    if detail["name"] == "target":  # a shape
        return np.array([3, 4], np.int32)
    if np.issubdtype(detail["dtype"], np.integer):
        return random.integers(-100, 100, detail["shape"]).astype(detail["dtype"])
    return random.standard_normal(detail["shape"]).astype(detail["dtype"])
