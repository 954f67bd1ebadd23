"""Tables -> flatbuffer bytes, written from front to back, with large constants left out as places to fill.

The usual builders write back to front and copy every constant. Front to back, the tables come first and the constants
last, each at a multiple of 16 bytes as the runtimes want it, so the file is a small skeleton into which views of the
source model are spliced.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from edgeplace.tflite.schema_types import DTYPES, FILE_IDENTIFIER, SCALARS, Field, Table, TableType

CONSTANT_ALIGNMENT = 16
"""What the schema's ``force_align`` asks for buffer data."""

SPLICE_FROM_BYTES = 64
"""Smaller constants stay in the skeleton: a place to fill costs more than they do."""

_TAIL = bytes(32)
"""Zeros after the last constant: vector kernels may read (and ignore) a few bytes past the end of a tensor."""


class Encoder:
    """Encodes one root table.

    Attributes:
        skeleton: Everything but the constants' bytes, in order.
        constants: (offset in the finished file, bytes) of each constant, in order.
        size_bytes: Size of the finished file.
    """

    def __init__(self, root: Table) -> None:
        self.skeleton = bytearray(4) + FILE_IDENTIFIER
        self.constants: list[tuple[int, memoryview]] = []
        self._vtables: dict[bytes, int] = {}
        self._layouts: dict[tuple[str, tuple[int, ...]], tuple[int, bytes, dict[str, int]]] = {}
        self._written: dict[tuple[int, str], int] = {}  # what is referred to twice is written once
        self._strings: dict[str, int] = {}
        self._places: list[tuple[int, memoryview]] = []
        self._patch(0, self._table(root))
        self.size_bytes = self._lay_out_constants()

    def _patch(self, position: int, target: int) -> None:
        struct.pack_into("<I", self.skeleton, position, target - position)

    def _pad(self, alignment: int, ahead: int = 0) -> None:
        """Zeros until the position ``ahead`` bytes from here is a multiple of ``alignment``."""
        self.skeleton.extend(bytes(-(len(self.skeleton) + ahead) % alignment))

    def _table(self, table: Table) -> int:
        key = (id(table), "")
        known = self._written.get(key)
        if known is not None:
            return known
        fields = table.type.fields
        present = [name for name, value in table.values.items() if value is not None]
        size, vtable, offsets = self._layout(table.type, present)
        vtable_position = self._vtables.get(vtable)
        if vtable_position is None:
            self._pad(2)
            vtable_position = self._vtables[vtable] = len(self.skeleton)
            self.skeleton.extend(vtable)
        self._pad(8, ahead=4)  # the first field stands 4 bytes in, the widest come first
        position = self._written[key] = len(self.skeleton)
        self.skeleton.extend(bytes(size))
        struct.pack_into("<i", self.skeleton, position, position - vtable_position)
        for name in present:
            field, place = fields[name], position + offsets[name]
            if field.kind == "scalar":
                SCALARS[field.code].pack_into(self.skeleton, place, table.values[name])
            else:
                self._reference(place, field, table.values[name], table.type)
        return position

    def _layout(self, type: TableType, present: list[str]) -> tuple[int, bytes, dict[str, int]]:
        """Size, vtable and field offsets of a table that has these fields."""
        fields = sorted((type.fields[name] for name in present), key=lambda field: field.slot)
        key = (type.name, tuple(field.slot for field in fields))
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

    def _reference(self, place: int, field: Field, value: Any, type: TableType) -> None:
        if field.kind == "string":
            self._patch(place, self._string(value))
        elif field.kind == "tables":
            self._table_vector(place, value)
        elif field.kind != "scalars":
            self._patch(place, self._table(value))
        elif type.name == "Buffer" and len(value) >= SPLICE_FROM_BYTES:
            self._places.append((place, memoryview(value)))
        else:
            self._patch(place, self._scalars(field, value))

    def _scalars(self, field: Field, value: Any) -> int:
        key = (id(value), field.code)
        known = self._written.get(key)
        if known is None:
            data = bytes(value) if field.code == "B" else np.asarray(value, DTYPES[field.code]).tobytes()
            # Constants that stay in the skeleton are aligned like the others.
            self._pad(CONSTANT_ALIGNMENT if field.code == "B" else max(4, field.element_size), ahead=4)
            known = self._written[key] = len(self.skeleton)
            self.skeleton.extend(struct.pack("<I", len(value)))
            self.skeleton.extend(data)
        return known

    def _table_vector(self, place: int, tables: list[Table]) -> None:
        key = (id(tables), "")
        known = self._written.get(key)
        if known is None:
            self._pad(4)
            known = self._written[key] = len(self.skeleton)
            self.skeleton.extend(struct.pack("<I", len(tables)) + bytes(4 * len(tables)))
            for number, table in enumerate(tables):
                self._patch(known + 4 + 4 * number, self._table(table))
        self._patch(place, known)

    def _string(self, text: str) -> int:
        known = self._strings.get(text)
        if known is None:
            raw = text.encode()
            self._pad(4)
            known = self._strings[text] = len(self.skeleton)
            self.skeleton.extend(struct.pack("<I", len(raw)) + raw + b"\0")
        return known

    def _lay_out_constants(self) -> int:
        """Give each constant its place behind the tables and return the size of the finished file."""
        position = len(self.skeleton)  # in the finished file
        for place, data in self._places:
            padding = -(position + 4) % CONSTANT_ALIGNMENT
            self.skeleton.extend(bytes(padding) + struct.pack("<I", len(data)))
            position += padding + 4
            if position + len(data) >= 2**31:
                raise OverflowError("a flatbuffer ends at 2 GB")
            self._patch(place, position - 4)
            self.constants.append((position, data))
            position += len(data)
        self.skeleton.extend(_TAIL)
        return position + len(_TAIL)
