"""The few things a runtime does not tell about a ``.tflite`` file, read straight from its flatbuffer.

Runtimes hide which operators keep state, and LiteRT's CompiledModel orders inputs by signature, not by subgraph. This
reads the tables needed for that, with ``struct`` alone (the board has no flatbuffers package). Field numbers are those
of the public schema (``schema.fbs``, version 3).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import Any, Optional, Union

_RESOURCE_OPS = frozenset((10, 129, 136, 137, 138, 139, 142, 143, 144))
"""HASHTABLE_LOOKUP, CALL_ONCE, HASHTABLE*, VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE: state outside the tensors."""
_RANDOM_OPS = frozenset((146, 148, 149))
"""RANDOM_STANDARD_NORMAL, RANDOM_UNIFORM, MULTINOMIAL: the generator's position is state."""

_Data = Union[bytes, mmap.mmap]


class ModelFileError(ValueError):
    """The bytes are no ``.tflite`` file."""


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a file's first subgraph, and about state anywhere in the file.

    Attributes:
        inputs: Tensor numbers of the inputs, in order.
        outputs: Tensor numbers of the outputs, in order.
        names: Tensor names.
        node_count: Number of operators.
        constants: Tensor numbers whose data is in the file.
        has_variables: Some tensor keeps its value from run to run.
        has_resources: Some operator keeps state outside the tensors; only opening the file again resets it.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    names: tuple[str, ...]
    node_count: int
    constants: frozenset[int]
    has_variables: bool
    has_resources: bool

    @property
    def stateful(self) -> bool:
        """The same input twice may give different outputs."""
        return self.has_variables or self.has_resources


def read_model_facts(path: str) -> ModelFacts:
    """Read the facts of the file at ``path``.

    Raises:
        ModelFileError: The file is no ``.tflite`` file, or ends too early.
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file cannot be mapped
            raise ModelFileError("the file is empty") from None
        with data:
            if data[4:8] != b"TFL3":
                raise ModelFileError("the file is no .tflite file (identifier TFL3 is missing)")
            try:
                return _facts(data)
            except (struct.error, IndexError) as error:
                raise ModelFileError(f"the file is damaged: {error}") from None


def _facts(data: _Data) -> ModelFacts:
    model = _Table(data, _u32(data, 0))
    codes = [
        max(code.scalar(0, "<b", 0), code.scalar(3, "<i", 0))
        for code in model.tables(1)  # small codes stand in the old byte field, large ones in the new field
    ]
    used = set(codes)
    filled = [buffer.vector(0)[1] > 0 or buffer.scalar(1, "<Q", 0) > 1 for buffer in model.tables(4)]
    subgraphs = model.tables(2)
    if not subgraphs:
        raise ModelFileError("the file has no subgraph")
    first = subgraphs[0]
    tensors = first.tables(0)
    return ModelFacts(
        inputs=first.ints(1),
        outputs=first.ints(2),
        names=tuple(tensor.text(3) for tensor in tensors),
        node_count=first.vector(3)[1],
        constants=frozenset(i for i, tensor in enumerate(tensors) if filled[tensor.scalar(2, "<I", 0)]),
        has_variables=any(tensor.scalar(5, "<B", 0) for graph in subgraphs for tensor in graph.tables(0)),
        has_resources=bool(used & (_RESOURCE_OPS | _RANDOM_OPS)),
    )


def _u32(data: _Data, position: int) -> int:
    value: int = struct.unpack_from("<I", data, position)[0]
    return value


class _Table:
    """A flatbuffer table: fields are found through its vtable."""

    def __init__(self, data: _Data, position: int) -> None:
        self._data = data
        self._position = position
        self._vtable = position - struct.unpack_from("<i", data, position)[0]
        self._vtable_size: int = struct.unpack_from("<H", data, self._vtable)[0]

    def _field(self, number: int) -> Optional[int]:
        slot = 4 + 2 * number
        if slot + 2 > self._vtable_size:
            return None
        offset: int = struct.unpack_from("<H", self._data, self._vtable + slot)[0]
        return self._position + offset if offset else None

    def scalar(self, number: int, form: str, default: int) -> int:
        position = self._field(number)
        return default if position is None else int(struct.unpack_from(form, self._data, position)[0])

    def vector(self, number: int) -> tuple[int, int]:
        """Position of the first element, and the number of elements."""
        position = self._field(number)
        if position is None:
            return 0, 0
        start = position + _u32(self._data, position)
        return start + 4, _u32(self._data, start)

    def tables(self, number: int) -> list[_Table]:
        start, count = self.vector(number)
        places = struct.unpack_from(f"<{count}I", self._data, start)
        return [_Table(self._data, start + 4 * i + offset) for i, offset in enumerate(places)]

    def ints(self, number: int) -> tuple[int, ...]:
        start, count = self.vector(number)
        values: tuple[Any, ...] = struct.unpack_from(f"<{count}i", self._data, start)
        return values

    def text(self, number: int) -> str:
        start, count = self.vector(number)
        return bytes(self._data[start : start + count]).decode("utf-8", "replace")
