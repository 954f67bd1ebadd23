"""Flatbuffer bytes -> :class:`~edgeplace.tflite.schema_types.Table`, with every offset checked before it is followed.

The generated Python classes check nothing: a changed byte makes them read somewhere else, or for ever. This decoder
reads a file only through its own checks. Its guarantees, for any bytes at all:

- nothing outside the file is read, and the only errors are :class:`~edgeplace.errors.ModelError`;
- nesting is as deep as the schema (no table of it contains itself), however the offsets point;
- work and memory stay in proportion to the file: an object that many refer to is decoded once, and distinct objects
  may not overlap (together they may not be larger than twice the file);
- vectors of numbers and bytes are views of the file, not copies;
- a field, union member or other thing of a newer schema is an error, never left out in silence.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from edgeplace.errors import ModelError
from edgeplace.tflite.schema_types import DTYPES, SCALARS, TABLE_TYPES, UNION_MEMBERS, Field, Table, TableType

MAX_TABLES = 2_000_000
"""More tables than any model has (a network of 100 000 operators has under a million); bounds memory and time."""

_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")

_Layout = tuple[int, tuple[tuple[Field, int], ...]]


def decode(data: memoryview, root_type: str, where: str) -> Table:
    """The root table of a flatbuffer.

    Args:
        data: The whole file, as bytes.
        where: The file's name for messages.

    Raises:
        ModelError: Some offset, length or type is wrong; the message says which and where in the file.
    """
    return _Decoder(data, where).root(TABLE_TYPES[root_type])


class _Decoder:
    def __init__(self, data: memoryview, where: str) -> None:
        self._data = data
        self._size = len(data)
        self._where = where
        self._budget = 2 * self._size
        self._tables: dict[tuple[int, str], Table] = {}
        self._vectors: dict[tuple[int, str], Any] = {}
        self._strings: dict[int, str] = {}
        self._layouts: dict[tuple[int, str], _Layout] = {}

    def root(self, type: TableType) -> Table:
        return self._table(self._follow(0, type.name), type)

    def _error(self, position: int, reason: str) -> ModelError:
        return ModelError(
            f"damaged file: {reason} (at byte {position} of {self._size})",
            where=self._where,
            hint="get the file again; `sha256sum` tells whether a download was cut short or changed",
        )

    def _charge(self, position: int, size: int) -> None:
        """Take a newly decoded object out of the budget."""
        self._budget -= size
        if self._budget < 0:
            raise self._error(position, "objects overlap so often that they are larger than the file")

    def _follow(self, position: int, what: str) -> int:
        """Where the offset at this position leads."""
        if position + 4 > self._size:
            raise self._error(position, f"the file ends before {what}")
        target = position + int(_U32.unpack_from(self._data, position)[0])
        if target == position or target + 4 > self._size:
            raise self._error(position, f"the offset of {what} leads to byte {target}")
        return target

    def _table(self, position: int, type: TableType) -> Table:
        key = (position, type.name)
        known = self._tables.get(key)
        if known is not None:
            return known
        if len(self._tables) >= MAX_TABLES:
            raise self._error(position, f"more than {MAX_TABLES} tables")
        vtable = position - int(_I32.unpack_from(self._data, position)[0])
        layout = self._layouts.get((vtable, type.name))
        if layout is None:
            layout = self._layouts[(vtable, type.name)] = self._layout(position, vtable, type)
        size, entries = layout
        if position + size > self._size:
            raise self._error(position, f"{type.name} is cut off by the end of the file")
        self._charge(position, size)
        values: dict[str, Any] = {}
        for field, offset in entries:
            place = position + offset
            if field.kind == "scalar":
                values[field.name] = SCALARS[field.code].unpack_from(self._data, place)[0]
            else:
                values[field.name] = self._reference(place, field, type, values)
        table = self._tables[key] = Table(type, values)
        return table

    def _layout(self, position: int, vtable: int, type: TableType) -> _Layout:
        """Size of a table and the offsets of the fields it has, from its checked vtable."""
        if vtable < 0 or vtable + 4 > self._size:
            raise self._error(position, f"the vtable of {type.name} is at byte {vtable}")
        vtable_size, table_size = struct.unpack_from("<HH", self._data, vtable)
        if vtable_size < 4 or vtable_size % 2 or vtable + vtable_size > self._size or table_size < 4:
            raise self._error(vtable, f"the vtable of {type.name} has sizes {vtable_size} and {table_size}")
        self._charge(vtable, vtable_size)
        offsets = struct.unpack_from(f"<{vtable_size // 2 - 2}H", self._data, vtable + 4)
        entries = []
        for slot, offset in enumerate(offsets):
            if offset == 0:
                continue
            if slot >= len(type.slots):
                raise ModelError(
                    f"{type.name} has field number {slot}, which is newer than the schema known here",
                    where=self._where,
                    hint="update edgeplace, or convert the model with an older converter",
                )
            field = type.slots[slot]
            if field is None:  # withdrawn from the schema: old files have it, no reader looks at it
                continue
            if offset < 4 or offset + field.inline_size > table_size:
                raise self._error(vtable, f"{type.name}.{field.name} is outside its table")
            entries.append((field, offset))
        return table_size, tuple(entries)

    def _reference(self, place: int, field: Field, type: TableType, values: dict[str, Any]) -> Any:
        """The value of a field that is an offset."""
        what = f"{type.name}.{field.name}"
        target = self._follow(place, what)
        if field.kind == "scalars":
            return self._scalars(target, field, what)
        if field.kind == "string":
            return self._string(target, what)
        if field.kind == "table":
            return self._table(target, TABLE_TYPES[field.target])
        if field.kind == "tables":
            return self._table_vector(target, field, what)
        number = values.get(f"{field.name}_type", 0)
        if number == 0:
            return None
        member = UNION_MEMBERS[field.target].get(number)
        if member is None:
            raise ModelError(
                f"{what} is of kind {number}, which is not in the schema known here",
                where=self._where,
                hint="update edgeplace, or convert the model with an older converter",
            )
        return self._table(target, TABLE_TYPES[member])

    def _length(self, position: int, element_size: int, what: str) -> int:
        length = int(_U32.unpack_from(self._data, position)[0])
        if position + 4 + length * element_size > self._size:
            raise self._error(position, f"{what} says it has {length} elements, more than the file holds")
        self._charge(position, 4 + length * element_size)
        return length

    def _scalars(self, position: int, field: Field, what: str) -> Any:
        key = (position, field.code)
        if key not in self._vectors:
            length = self._length(position, field.element_size, what)
            start = position + 4
            if field.code == "B":
                self._vectors[key] = self._data[start : start + length]
            else:
                self._vectors[key] = np.frombuffer(self._data, DTYPES[field.code], length, start)
        return self._vectors[key]

    def _table_vector(self, position: int, field: Field, what: str) -> list[Table]:
        key = (position, field.target)
        if key not in self._vectors:
            length = self._length(position, 4, what)
            type = TABLE_TYPES[field.target]
            first = position + 4
            self._vectors[key] = [
                self._table(self._follow(place, what), type) for place in range(first, first + 4 * length, 4)
            ]
        tables: list[Table] = self._vectors[key]
        return tables

    def _string(self, position: int, what: str) -> str:
        text = self._strings.get(position)
        if text is None:
            length = self._length(position, 1, what)
            raw = bytes(self._data[position + 4 : position + 4 + length])
            text = self._strings[position] = raw.decode("utf-8", "backslashreplace")
        return text
