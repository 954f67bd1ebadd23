"""A cut-out ``.tflite`` file that has not been written yet: a skeleton and views of the model's constants.

A segment travels as a *recipe*: the skeleton bytes plus, for each constant, its hash and where it goes in the file.
The receiver splices the constants it already has into the skeleton, so a weight crosses the link once, however many
placements are tried. Constants stay views of the model file until something is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgeplace.atomic import write_atomic


@dataclass(frozen=True, slots=True)
class ConstantRef:
    """Where one constant goes in the finished file: ``size_bytes`` bytes at ``offset``, with that hash."""

    sha256: str
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A stand-alone ``.tflite`` file as skeleton plus constants.

    Attributes:
        sha256: Hash of the finished file.
        size_bytes: Size of the finished file.
        skeleton: All bytes of the file but the constants' data, in order.
        constants: The constants in order of ``offset``; the same hash may stand more than once.
        data: The constants' bytes by hash (views of the model, not copies).
    """

    sha256: str
    size_bytes: int
    skeleton: bytes
    constants: tuple[ConstantRef, ...]
    data: Mapping[str, memoryview]

    def pieces(self) -> Iterator[memoryview]:
        """The finished file, piece by piece, without copying a constant."""
        yield from splice(memoryview(self.skeleton), self.constants, self.data)

    def to_bytes(self) -> bytes:
        """The finished file in memory."""
        return b"".join(self.pieces())

    def write(self, path: str | Path) -> None:
        """Write the finished file, all of it or nothing.

        Raises:
            OutputError: It could not be written; a file that was there before is still there.
        """
        write_atomic(path, self.pieces())


def splice(
    skeleton: memoryview, constants: tuple[ConstantRef, ...], data: Mapping[str, memoryview]
) -> Iterator[memoryview]:
    """The pieces of the finished file in order: skeleton up to the first constant, the constant, and so on."""
    taken = 0  # skeleton bytes already given
    position = 0  # bytes of the finished file already given
    for constant in constants:
        gap = constant.offset - position
        if gap:
            yield skeleton[taken : taken + gap]
            taken += gap
        yield data[constant.sha256]
        position = constant.offset + constant.size_bytes
    if taken < len(skeleton):
        yield skeleton[taken:]
