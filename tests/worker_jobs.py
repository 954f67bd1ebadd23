"""Jobs of the worker in this process, without an agent around them; and blobs and plans for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from device_agents.arrays import pack_arrays, unpack_arrays
from device_agents.plan_runner import WorkerContext, handle_job

CPU = {"name": "cpu", "kind": "cpu", "loader": "interpreter", "options": {"threads": 1}}
BUILTIN = {"name": "builtin", "kind": "cpu", "loader": "interpreter", "options": {"kernels": "builtin"}}
REFERENCE = {"name": "reference", "kind": "cpu", "loader": "interpreter", "options": {"kernels": "reference"}}
GPU = {"name": "gpu", "kind": "gpu", "loader": "compiled_model"}
NPU = {
    "name": "npu",
    "kind": "npu",
    "loader": "compiled_model",
    "options": {"graph_backend": "CPU"},
}  # Intel OpenVINO's CPU device: runs on every x86 machine


class Jobs:
    """Does jobs with one worker context; ``progress`` holds what was reported."""

    def __init__(self, folder: Path, **context: Any) -> None:
        self._folder = folder
        self.paths: dict[str, str] = {}
        self.progress: list[dict[str, Any]] = []
        self.context = WorkerContext(lambda **facts: self.progress.append(facts), **context)

    def model(self, file: Path | bytes) -> str:
        """Hash of a model file, which jobs can name from now on."""
        if isinstance(file, bytes):
            return self._keep(file)
        name = hashlib.sha256(file.read_bytes()).hexdigest()
        self.paths[name] = str(file)
        return name

    def array(self, array: Any) -> dict[str, Any]:
        """An array blob."""
        (description,), pieces = pack_arrays([array])
        blob = self._keep(b"".join(bytes(piece) for piece in pieces))
        return {"blob": blob, "dtype": description["dtype"], "shape": description["shape"]}

    def _keep(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        path = self._folder / name
        path.write_bytes(data)
        self.paths[name] = str(path)
        return name

    def do(self, verb: str, **fields: Any) -> tuple[dict[str, Any], list[Any]]:
        """Header and arrays of the answer."""
        header, pieces = handle_job({"verb": verb, "paths": self.paths, **fields}, b"", self.context)
        payload = b"".join(bytes(piece) for piece in pieces)
        return header, unpack_arrays(header.get("arrays", []), payload)


def plan_of(
    segments: Sequence[tuple[dict[str, Any], str, Sequence[Any], int]], outputs: Sequence[Any]
) -> dict[str, Any]:
    """A plan on the wire from (platform, model hash, input sources, number of outputs) per segment."""
    return {
        "segments": [
            {
                "platform": platform["name"],
                "model": model,
                "inputs": [list(s) for s in inputs],
                "outputs": count,
            }
            for platform, model, inputs, count in segments
        ],
        "outputs": [list(source) for source in outputs],
        "platforms": {platform["name"]: platform for platform, *_ in segments},
    }


def whole_model_plan(platform: dict[str, Any], model: str, inputs: int, outputs: int) -> dict[str, Any]:
    """A plan of one segment."""
    sources = [("input", i) for i in range(inputs)]
    return plan_of([(platform, model, sources, outputs)], [("segment", 0, k) for k in range(outputs)])


def seeded(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    """Floats in -1..1, or integers over a byte's range."""
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return generator.uniform(-1, 1, shape).astype(dtype)
    return generator.integers(-100, 100, shape).astype(dtype)
