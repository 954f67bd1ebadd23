"""A model file as it was given, as a recipe: the segments cut from it share its constants, so they travel once."""

from __future__ import annotations

import numpy as np

from edgeplace.tflite.reader import Model
from edgeplace.tflite.segment_file import ConstantRef, SegmentFile
from edgeplace.tflite.verifier import tables_of

WORTH_SHARING_BYTES = 1024
"""Smaller constants stay in the skeleton: a hash and an offset would not be shorter."""


def original_file(model: Model) -> SegmentFile:
    """The bytes of the file itself, with its larger constants named by hash."""
    constants: list[ConstantRef] = []
    skeleton: list[memoryview] = []
    data: dict[str, memoryview] = {}
    position = 0
    for offset, buffer in sorted(_offsets(model)):
        view = model.constant(buffer)
        if len(view) < WORTH_SHARING_BYTES or offset < position:  # overlapping buffers: the first one counts
            continue
        skeleton.append(model.data[position:offset])
        constants.append(ConstantRef(model.constant_sha256(buffer), offset, len(view)))
        data[constants[-1].sha256] = view
        position = offset + len(view)
    skeleton.append(model.data[position:])
    return SegmentFile(model.sha256, len(model.data), b"".join(skeleton), tuple(constants), data)


def _offsets(model: Model) -> list[tuple[int, int]]:
    """(position in the file, buffer number) of every buffer with data; the views are of the file itself."""
    start = np.frombuffer(model.data, np.uint8).ctypes.data
    numbers = range(len(tables_of(model.table["buffers"])))
    return [
        (np.frombuffer(model.constant(number), np.uint8).ctypes.data - start, number)
        for number in numbers
        if len(model.constant(number))
    ]
