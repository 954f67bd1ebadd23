"""Plans and arrays as they go over the wire (``device_agents/protocol.py``)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy.typing as npt

from device_agents.arrays import pack_arrays
from edgeplace.placement.plan import Plan, Source
from edgeplace.tflite.segment_file import SegmentFile


class ArrayBlob(TypedDict):
    """An array whose bytes are a blob on the board."""

    blob: str
    dtype: str
    shape: list[int]


def array_blobs(arrays: Sequence[npt.NDArray[Any]]) -> tuple[list[ArrayBlob], dict[str, memoryview]]:
    """The description of each array, and the blobs' bytes by hash (views where the arrays are contiguous)."""
    descriptions, pieces = pack_arrays(arrays)
    blobs: list[ArrayBlob] = []
    data: dict[str, memoryview] = {}
    for description, piece in zip(descriptions, pieces, strict=True):
        sha256 = hashlib.sha256(piece).hexdigest()
        blobs.append({"blob": sha256, "dtype": description["dtype"], "shape": description["shape"]})
        data[sha256] = memoryview(piece)
    return blobs, data


def wire_plan(
    plan: Plan,
    files: Mapping[int, SegmentFile],
    platforms: Mapping[str, Mapping[str, Any]],
    constants: Mapping[int, ArrayBlob] | None = None,
) -> dict[str, Any]:
    """The plan as the agent takes it.

    Args:
        plan: The plan; its segments' ids are their positions.
        files: Segment id -> its file.
        platforms: Platform name -> the platform on the wire; more than the plan uses do not matter.
        constants: Tensor number -> its array blob, for constants that segments or graph outputs take directly.

    Raises:
        KeyError: A file, platform or constant that the plan needs is missing.
    """
    known = constants or {}
    return {
        "segments": [
            {
                "platform": segment.platform,
                "model": files[segment.id].sha256,
                "inputs": [_wire_source(source, known) for source in segment.sources],
                "outputs": len(segment.outputs),
            }
            for segment in plan.segments
        ],
        "outputs": [_wire_source(source, known) for source in plan.outputs],
        "platforms": {name: dict(platforms[name]) for name in {s.platform for s in plan.segments}},
    }


def _wire_source(source: Source, constants: Mapping[int, ArrayBlob]) -> list[Any]:
    if source.kind == "input":
        return ["input", source.index]
    if source.kind == "segment":
        return ["segment", source.index, source.output]
    blob = constants[source.index]
    return ["constant", blob["blob"], blob["dtype"], blob["shape"]]
