"""The TFLite schema as objects: what fields a table has, where they are, and what an absent field means.

Made from the text of :mod:`edgeplace.tflite.schema_table` on import. Decoder and encoder are driven by it, so what is
read is exactly what was checked, and what is written is exactly what was read, whatever version of a runtime is
installed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from edgeplace.tflite import schema_table

FILE_IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3

_STRUCT_CODES = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip
SCALARS = {code: struct.Struct(f"<{code}") for code in _STRUCT_CODES.values()}
"""``struct`` code -> how to read and write one."""
DTYPES = {code: np.dtype(code if code == "?" else f"<{code}") for code in _STRUCT_CODES.values()}
"""``struct`` code -> numpy type of a vector of them."""

Kind = Literal["scalar", "string", "table", "union", "scalars", "tables"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table.

    Attributes:
        code: ``struct`` code of the scalar, or of the elements of a vector of scalars; else empty.
        target: The table (``table``, ``tables``) or union (``union``) it refers to; else empty.
        default: What an absent field means.
    """

    slot: int
    name: str
    kind: Kind
    code: str = ""
    target: str = ""
    default: Any = None

    @property
    def inline_size(self) -> int:
        """Bytes it takes inside its table (4 for an offset)."""
        return SCALARS[self.code].size if self.kind == "scalar" else 4

    @property
    def element_size(self) -> int:
        """Bytes of one element of a vector."""
        return SCALARS[self.code].size if self.kind == "scalars" else 4


@dataclass(frozen=True, slots=True)
class TableType:
    """One table of the schema: its fields by name, and by slot (``None`` where a field was withdrawn)."""

    name: str
    fields: Mapping[str, Field]
    slots: tuple[Field | None, ...]


class Table:
    """One table of a file: the fields that are present, by name.

    Values are numbers, ``str``, :class:`Table`, lists of tables, ``memoryview`` (vectors of bytes) and read-only numpy
    arrays (other vectors). Tables of a read file are shared and never changed; :meth:`but` makes changed copies.
    """

    __slots__ = ("type", "values")

    def __init__(self, type: TableType, values: dict[str, Any]) -> None:
        self.type = type
        self.values = values

    def __getitem__(self, name: str) -> Any:
        """The field's value, or what its absence means. An unknown name is a ``KeyError``."""
        value = self.values.get(name)
        return self.type.fields[name].default if value is None else value

    def but(self, **changes: Any) -> Table:
        """A copy with other values; ``None`` takes a field out."""
        values = {**self.values, **changes}
        return Table(self.type, {name: value for name, value in values.items() if value is not None})

    def __repr__(self) -> str:
        return f"{self.type.name}({', '.join(self.values)})"


def _rows(text: str) -> dict[str, list[str]]:
    """Table text -> first word -> the other words (a line that begins with a space goes on)."""
    rows: dict[str, list[str]] = {}
    words: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith(" "):
            words.extend(line.split())
        else:
            first, *words = line.split()
            rows[first] = words
    return rows


def _numbered(words: list[str]) -> Mapping[int, str]:
    return MappingProxyType(
        {int(number): name for number, _, name in (word.partition(":") for word in words)}
    )


def _field(text: str) -> Field:
    slot, name, kind = text.split(":")
    kind, _, default = kind.partition("=")
    element = kind.strip("[]")
    vector = kind != element
    if element in _STRUCT_CODES:
        code = _STRUCT_CODES[element]
        if vector:
            return Field(int(slot), name, "scalars", code=code)
        zero: Any = {"?": False, "f": 0.0, "d": 0.0}.get(code, 0)
        value = {"": zero, "True": True}[default] if default in {"", "True"} else type(zero)(default)
        return Field(int(slot), name, "scalar", code=code, default=value)
    if element == "string":
        return Field(int(slot), name, "string", default="")
    if element.startswith("?"):
        return Field(int(slot), name, "union", target=element[1:])
    return Field(int(slot), name, "tables" if vector else "table", target=element)


def _table_type(name: str, words: list[str]) -> TableType:
    fields = [_field(word) for word in words]
    by_slot = {field.slot: field for field in fields}
    slots = tuple(by_slot.get(slot) for slot in range(max(by_slot, default=-1) + 1))
    return TableType(name, MappingProxyType({field.name: field for field in fields}), slots)


TABLE_TYPES: Mapping[str, TableType] = MappingProxyType(
    {name: _table_type(name, words) for name, words in _rows(schema_table.TABLES).items()}
)
UNION_MEMBERS: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {name: _numbered(words) for name, words in _rows(schema_table.UNIONS).items()}
)
_ENUMS = {name: _numbered(words) for name, words in _rows(schema_table.ENUMS).items()}
OPERATOR_NAMES: Mapping[int, str] = _ENUMS["BuiltinOperator"]
"""Builtin operator code -> name (``CONV_2D``)."""
TENSOR_TYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {number: name.lower() for number, name in _ENUMS["TensorType"].items()}
)
"""Tensor type number -> name (``float32``)."""


def new_table(type_name: str, **values: Any) -> Table:
    """A new table of that type; fields that are ``None`` stay out."""
    return Table(TABLE_TYPES[type_name], {}).but(**values)
