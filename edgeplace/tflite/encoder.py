"""Tables -> flatbuffer bytes, written from front to back, with large constants left out as places to fill.

The usual builders write back to front and copy every constant. Front to back, the tables come first and the constants
last, each at a multiple of 16 bytes as the runtimes want it, so the file is a small skeleton into which views of the
source model are spliced.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from edgeplace.tflite.schema_types import DTYPES, FILE_IDENTIFIER, SCALARS, Field, Table

CONSTANT_ALIGNMENT = 16
"""What the schema's ``force_align`` asks for buffer data."""

MAX_FLATBUFFER_BYTES = 2**31 - 1
"""Where a flatbuffer ends: offsets are 32 bits, half of which runtimes use."""

SPLICE_FROM_BYTES = 64
"""Smaller constants stay in the skeleton: a place to fill costs more than they do."""

_TAIL = bytes(32)
"""Zeros after the last constant: vector kernels may read (and ignore) a few bytes past the end of a tensor."""


_Key = tuple[str, object]


class Encoder:
    """Encodes one root table.

    Offsets in a flatbuffer only lead forwards, so everything is written before what it refers to; what several refer
    to is written once, behind all of them.

    Attributes:
        skeleton: Everything but the constants' bytes, in order.
        constants: (offset in the finished file, bytes) of each constant, in order.
        size_bytes: Size of the finished file.

    Raises:
        OverflowError: The file would be larger than a flatbuffer can be.
    """

    def __init__(self, root: Table) -> None:
        self.skeleton = bytearray(4) + FILE_IDENTIFIER
        self.constants: list[tuple[int, memoryview]] = []
        self._objects: dict[_Key, tuple[str, Any, str]] = {}  # each after all it refers to
        self._positions: dict[_Key, int] = {}
        self._patches: list[tuple[int, _Key]] = [(0, ("table", id(root)))]
        self._places: list[tuple[int, memoryview]] = []
        self._vtables: dict[bytes, int] = {}
        self._layouts: dict[tuple[str, tuple[int, ...]], tuple[int, bytes, dict[str, int]]] = {}
        self._collect("table", root, "")
        for key, (kind, value, code) in reversed(self._objects.items()):
            self._positions[key] = self._write(kind, value, code)
        for place, key in self._patches:
            self._patch(place, self._positions[key])
        self.size_bytes = self._lay_out_constants()

    def _collect(self, kind: str, value: Any, code: str) -> None:
        """Enter an object after everything it refers to."""
        key = _key(kind, value, code)
        if key in self._objects:
            return
        if kind == "tables":
            for table in reversed(value):
                self._collect("table", table, "")
        elif kind == "table":
            for field, content in reversed(_references(value)):
                if not _is_spliced(value, content):
                    self._collect(_kind(field), content, field.code)
        self._objects[key] = (kind, value, code)

    def _write(self, kind: str, value: Any, code: str) -> int:
        """Append an object and return its position."""
        if kind == "table":
            return self._table(value)
        if kind == "tables":
            self._pad(4)
            position = len(self.skeleton)
            self.skeleton.extend(struct.pack("<I", len(value)) + bytes(4 * len(value)))
            for number, table in enumerate(value):
                self._patches.append((position + 4 + 4 * number, _key("table", table, "")))
            return position
        if kind == "string":
            value = value.encode()
            data, alignment = value + b"\0", 4
        elif code == "B":
            # Constants that stay in the skeleton are aligned like the others.
            data, alignment = bytes(value), CONSTANT_ALIGNMENT
        else:
            vector = np.asarray(value, DTYPES[code])
            data, alignment = vector.tobytes(), max(4, vector.itemsize)
        self._pad(alignment, ahead=4)
        position = len(self.skeleton)
        self.skeleton.extend(struct.pack("<I", len(value)) + data)
        return position

    def _table(self, table: Table) -> int:
        size, vtable, offsets = self._layout(table)
        vtable_position = self._vtables.get(vtable)
        if vtable_position is None:
            self._pad(2)
            vtable_position = self._vtables[vtable] = len(self.skeleton)
            self.skeleton.extend(vtable)
        self._pad(8, ahead=4)  # the first field stands 4 bytes in, the widest come first
        position = len(self.skeleton)
        self.skeleton.extend(bytes(size))
        struct.pack_into("<i", self.skeleton, position, position - vtable_position)
        for name, value in table.values.items():
            field = table.type.fields[name]
            if field.kind == "scalar":
                SCALARS[field.code].pack_into(self.skeleton, position + offsets[name], value)
        for field, value in _references(table):
            place = position + offsets[field.name]
            if _is_spliced(table, value):
                self._places.append((place, value))
            else:
                self._patches.append((place, _key(_kind(field), value, field.code)))
        return position

    def _layout(self, table: Table) -> tuple[int, bytes, dict[str, int]]:
        """Size, vtable and field offsets of a table with these fields."""
        present = [table.type.fields[name] for name, value in table.values.items() if value is not None]
        fields = sorted(present, key=lambda field: field.slot)
        key = (table.type.name, tuple(field.slot for field in fields))
        if key not in self._layouts:
            offsets: dict[str, int] = {}
            size = 4
            for field in sorted(fields, key=lambda field: -field.inline_size):
                offsets[field.name] = size
                size += field.inline_size
            size += -size % 4
            slots = [0] * (fields[-1].slot + 1 if fields else 0)
            for field in fields:
                slots[field.slot] = offsets[field.name]
            vtable = struct.pack(f"<{len(slots) + 2}H", 4 + 2 * len(slots), size, *slots)
            self._layouts[key] = (size, vtable, offsets)
        return self._layouts[key]

    def _patch(self, place: int, target: int) -> None:
        struct.pack_into("<I", self.skeleton, place, target - place)

    def _pad(self, alignment: int, ahead: int = 0) -> None:
        """Zeros until the position ``ahead`` bytes from here is a multiple of ``alignment``."""
        self.skeleton.extend(bytes(-(len(self.skeleton) + ahead) % alignment))

    def _lay_out_constants(self) -> int:
        """Give each constant its place behind the tables and return the size of the finished file."""
        position = len(self.skeleton)  # in the finished file
        for place, data in self._places:
            padding = -(position + 4) % CONSTANT_ALIGNMENT
            self.skeleton.extend(bytes(padding) + struct.pack("<I", len(data)))
            position += padding + 4
            if position + len(data) + len(_TAIL) > MAX_FLATBUFFER_BYTES:
                raise OverflowError(f"over {MAX_FLATBUFFER_BYTES} bytes")
            self._patch(place, position - 4)
            self.constants.append((position, data))
            position += len(data)
        self.skeleton.extend(_TAIL)
        return position + len(_TAIL)


def _key(kind: str, value: Any, code: str) -> _Key:
    """What makes two objects the same: strings by content, others by being the same object (read in the same way)."""
    return (kind, value) if kind == "string" else (f"{kind}{code}", id(value))


def _kind(field: Field) -> str:
    return "table" if field.kind == "union" else field.kind


def _references(table: Table) -> list[tuple[Field, Any]]:
    """The fields of a table that are offsets, with their values."""
    fields = table.type.fields
    return [
        (fields[name], value)
        for name, value in table.values.items()
        if value is not None and fields[name].kind != "scalar"
    ]


def _is_spliced(table: Table, value: Any) -> bool:
    """Whether a value is a constant that is left out of the skeleton."""
    return table.type.name == "Buffer" and len(value) >= SPLICE_FROM_BYTES
