"""Checks that every number in a decoded model that refers to something refers to something that is there.

:mod:`~edgeplace.tflite.decoder` has made sure that nothing points outside the file; here it is about meaning: tensor,
buffer, operator code and subgraph numbers, shapes, the sizes of constants. After :func:`verify`, code may index
without looking.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from edgeplace.errors import ModelError
from edgeplace.tflite.model import BITS_PER_ELEMENT
from edgeplace.tflite.schema_types import OPERATOR_NAMES, SCHEMA_VERSION, TENSOR_TYPE_NAMES, Table

MAX_RANK = 64
"""More dimensions than any kernel handles (most stop at 8); bounds the arithmetic on sizes."""

_SUBGRAPH_FIELDS = frozenset(
    {
        "subgraph", "init_subgraph_index", "then_subgraph_index", "else_subgraph_index", "cond_subgraph_index",
        "body_subgraph_index", "decomposition_subgraph_index", "comparator_subgraph_index",
        "update_computation_subgraph_index", "branch_subgraph_indices", "called_computations",
    }
)  # fmt: skip
"""Every options field that holds subgraph numbers."""


def operator_code(code: Table) -> int:
    """The builtin code of an ``OperatorCode``: files before schema 3a have only the byte field, later ones both.

    Source: the schema's comment on ``OperatorCode``; runtimes take the greater of the two.
    """
    return max(int(code["deprecated_builtin_code"]), int(code["builtin_code"]))


def subgraph_fields(options: Table) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The options fields that refer to subgraphs, and the numbers in them (-1, "none", left out)."""
    for name in options.type.fields:
        if name in _SUBGRAPH_FIELDS:
            value = options[name]
            numbers = (
                (int(value),) if options.type.fields[name].kind == "scalar" else tuple(numbers_of(value))
            )
            yield name, tuple(number for number in numbers if number != -1)


def called_subgraphs(operator: Table) -> tuple[int, ...]:
    """The subgraphs an operator calls, in the order its options name them."""
    return tuple(
        number
        for union in ("builtin_options", "builtin_options2")
        if operator[union] is not None
        for _, numbers in subgraph_fields(operator[union])
        for number in numbers
    )


def numbers_of(vector: Any) -> list[int]:
    """A vector of numbers as Python numbers; an absent vector is empty."""
    return [] if vector is None else vector.tolist() if hasattr(vector, "tolist") else list(vector)


def tables_of(vector: list[Table] | None) -> list[Table]:
    """A vector of tables; an absent vector is empty."""
    return [] if vector is None else vector


def buffer_data(buffer: Table, file: memoryview) -> memoryview:
    """A buffer's bytes: in its vector, or behind the flatbuffer in files over 2 GB; empty when it has none."""
    if buffer["offset"] > 1:  # 1 is what writers put while the place is not known yet
        return file[buffer["offset"] : buffer["offset"] + buffer["size"]]
    data = buffer["data"]
    return file[:0] if data is None else data


def verify(model: Table, file: memoryview, where: str) -> None:
    """Check a decoded model.

    Raises:
        ModelError: The first thing that is wrong, by name and number.
    """
    _Verifier(model, file, where).run()


class _Verifier:
    def __init__(self, model: Table, file: memoryview, where: str) -> None:
        self._model = model
        self._file = file
        self._where = where
        self._buffers = tables_of(model["buffers"])
        self._subgraphs = tables_of(model["subgraphs"])
        self._codes = tables_of(model["operator_codes"])
        self._bytes_left = 2 * len(file)

    def run(self) -> None:
        if self._model["version"] != SCHEMA_VERSION:
            raise self._error(
                f"schema version {self._model['version']}; runtimes and edgeplace read version {SCHEMA_VERSION}"
            )
        if not self._subgraphs:
            raise self._error("the model has no subgraph: there is nothing to run")
        if self._model["external_buffers"]:
            groups = ", ".join(
                group["name"][:60] for group in tables_of(self._model["external_buffer_groups"])[:3]
            )
            raise self._error(
                f"its weights are in other files ({groups})", hint="convert it with the weights inside"
            )
        self._check_codes()
        self._check_buffers()
        for number, subgraph in enumerate(self._subgraphs):
            self._check_subgraph(number, subgraph)
        self._check_calls()
        self._check_signatures()

    def _error(self, reason: str, hint: str = "") -> ModelError:
        return ModelError(reason, where=self._where, hint=hint or "convert or download the model again")

    def _charge(self, size: int) -> None:
        """Count what a walk over the model visits, in bytes it takes in a file that shares nothing.

        Tables and vectors may be shared, so a small file can spell out a model of any size: a thousand subgraphs that
        are one, with a thousand operators that are one. Writers share little, so twice the file is plenty.
        """
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise self._error("it refers to the same parts so often that it is larger than its file can be")

    def _tables(self, vector: list[Table] | None) -> list[Table]:
        tables = tables_of(vector)
        self._charge(sum(8 + 4 * len(table.values) for table in tables))  # the offset, the table, its fields
        return tables

    def _numbers(self, vector: Any) -> list[int]:
        if vector is not None:
            self._charge(vector.nbytes)
        return numbers_of(vector)

    def _check_range(self, numbers: Iterable[int], limit: int, what: str, least: int = 0) -> None:
        for number in numbers:
            if not least <= number < limit:
                raise self._error(f"{what} is {number}, but there are only {limit}")

    def _check_codes(self) -> None:
        for number, code in enumerate(self._codes):
            builtin = operator_code(code)
            if builtin not in OPERATOR_NAMES:
                raise self._error(
                    f"operator code {number} is builtin {builtin}, which is not in the schema known here",
                    hint="update edgeplace, or convert the model with an older converter",
                )
            if OPERATOR_NAMES[builtin] == "CUSTOM" and not code["custom_code"]:
                raise self._error(f"operator code {number} is a custom operator without a name")

    def _check_buffers(self) -> None:
        for number, buffer in enumerate(self._buffers):
            offset, size = buffer["offset"], buffer["size"]
            if offset > 1 and offset + size > len(self._file):
                raise self._error(f"buffer {number} is {size} bytes at byte {offset}, outside the file")
        metadata = self._tables(self._model["metadata"])
        self._check_range(
            (m["buffer"] for m in metadata), len(self._buffers), "the buffer of a metadata entry"
        )
        numbers = self._numbers(self._model["metadata_buffer"])
        self._check_range(numbers, len(self._buffers), "the buffer of a metadata entry")

    def _check_subgraph(self, number: int, subgraph: Table) -> None:
        where = f"subgraph {number}"
        tensors = self._tables(subgraph["tensors"])
        for index, tensor in enumerate(tensors):
            self._check_tensor(f"{where}, tensor {index} ({tensor['name'][:60]!r})", tensor, len(tensors))
        self._check_range(
            self._numbers(subgraph["inputs"]), len(tensors), f"{where}: an input's tensor number"
        )
        self._check_range(
            self._numbers(subgraph["outputs"]), len(tensors), f"{where}: an output's tensor number"
        )
        makers: dict[int, int] = {}
        for index, operator in enumerate(self._tables(subgraph["operators"])):
            self._check_operator(f"{where}, operator {index}", operator, len(tensors))
            for tensor_number in self._numbers(operator["outputs"]):
                if makers.setdefault(tensor_number, index) != index:
                    first = makers[tensor_number]
                    raise self._error(
                        f"{where}: operators {first} and {index} both make tensor {tensor_number}"
                    )

    def _check_operator(self, where: str, operator: Table, tensors: int) -> None:
        self._check_range([operator["opcode_index"]], len(self._codes), f"{where}: its operator code number")
        self._check_range(
            self._numbers(operator["inputs"]), tensors, f"{where}: an input's tensor number", -1
        )
        self._check_range(self._numbers(operator["outputs"]), tensors, f"{where}: an output's tensor number")
        intermediates = self._numbers(operator["intermediates"])
        self._check_range(intermediates, tensors, f"{where}: an intermediate's tensor number", -1)
        self._check_range(
            called_subgraphs(operator), len(self._subgraphs), f"{where}: the number of a called subgraph"
        )
        for union in ("builtin_options", "builtin_options2"):
            options = operator[union]
            if options is not None:
                fields = options.type.fields
                vectors = [v for name, v in options.values.items() if fields[name].kind == "scalars"]
                self._charge(sum(vector.nbytes for vector in vectors))
        offset, size = operator["large_custom_options_offset"], operator["large_custom_options_size"]
        if offset > 1 and offset + size > len(self._file):
            raise self._error(f"{where}: its options are {size} bytes at byte {offset}, outside the file")

    def _check_tensor(self, where: str, tensor: Table, tensors: int) -> None:
        self._check_range([tensor["buffer"]], len(self._buffers), f"{where}: its buffer number")
        if tensor["type"] not in TENSOR_TYPE_NAMES:
            raise self._error(
                f"{where} has type number {tensor['type']}, which is not in the schema known here"
            )
        shape = self._numbers(tensor["shape"])
        if len(shape) > MAX_RANK:
            raise self._error(f"{where} has {len(shape)} dimensions; no operator takes more than {MAX_RANK}")
        least = min(shape, default=0)
        if least < 0:
            raise self._error(f"{where} has a size of {least} in its shape: a size cannot be negative")
        if any(size < -1 for size in self._numbers(tensor["shape_signature"])):
            raise self._error(f"{where} has a shape signature with a size below -1")
        self._check_quantization(where, tensor, shape, tensors)
        if tensor["sparsity"] is not None:
            self._check_sparsity(where, tensor["sparsity"], len(shape))
        else:
            self._check_size(where, tensor, shape)

    def _check_size(self, where: str, tensor: Table, shape: Sequence[int]) -> None:
        """A dense constant has exactly the bytes its shape needs (runtimes refuse it otherwise)."""
        bits = BITS_PER_ELEMENT.get(TENSOR_TYPE_NAMES[tensor["type"]], 0)
        if bits == 0 or tensor["buffer"] == 0:
            return
        have = len(buffer_data(self._buffers[tensor["buffer"]], self._file))
        need = (math.prod(shape) * bits + 7) // 8
        if have and have != need:
            raise self._error(f"{where} needs {need} bytes, but its buffer {tensor['buffer']} has {have}")

    def _check_quantization(self, where: str, tensor: Table, shape: Sequence[int], tensors: int) -> None:
        quantization = tensor["quantization"]
        if quantization is None:
            return
        scales, points = quantization["scale"], quantization["zero_point"]
        self._charge(sum(vector.nbytes for vector in (scales, points) if vector is not None))
        if scales is not None and len(scales) > 1:
            axis = quantization["quantized_dimension"]
            if not 0 <= axis < len(shape):
                raise self._error(f"{where} is quantized along dimension {axis} of {len(shape)}")
        details = quantization["details"]
        if details is not None and details.type.name == "BlockwiseQuantization":
            numbers = (details["scales"], details["zero_points"])
            self._check_range(
                numbers, tensors, f"{where}: the tensor number of its scales or zero points", -1
            )

    def _check_sparsity(self, where: str, sparsity: Table, rank: int) -> None:
        order = self._numbers(sparsity["traversal_order"])
        dimensions = self._tables(sparsity["dim_metadata"])
        if len(order) != len(dimensions) or sorted(order) != list(range(len(order))):
            raise self._error(f"{where} is sparse, but its traversal order is not one of its dimensions")
        self._check_range(self._numbers(sparsity["block_map"]), rank, f"{where}: a block's dimension")

    def _check_calls(self) -> None:
        """No subgraph calls itself, over others or directly: the runtimes would recurse without end."""
        calls = [
            sorted({n for operator in tables_of(graph["operators"]) for n in called_subgraphs(operator)})
            for graph in self._subgraphs
        ]
        callers_left = [0] * len(calls)
        for callees in calls:
            for callee in callees:
                callers_left[callee] += 1
        ready = [number for number, count in enumerate(callers_left) if count == 0]
        done = 0
        while ready:
            done += 1
            for callee in calls[ready.pop()]:
                callers_left[callee] -= 1
                if callers_left[callee] == 0:
                    ready.append(callee)
        if done != len(calls):
            culprit = next(number for number, count in enumerate(callers_left) if count)
            raise self._error(f"subgraph {culprit} calls itself, directly or over others")

    def _check_signatures(self) -> None:
        for signature in self._tables(self._model["signature_defs"]):
            where = f"signature {signature['signature_key'][:60]!r}"
            self._check_range([signature["subgraph_index"]], len(self._subgraphs), f"{where}: its subgraph")
            tensors = len(tables_of(self._subgraphs[signature["subgraph_index"]]["tensors"]))
            for side in ("inputs", "outputs"):
                entries = self._tables(signature[side])
                numbers = (entry["tensor_index"] for entry in entries)
                self._check_range(numbers, tensors, f"{where}: the tensor number of one of its {side}")
                if len({entry["name"] for entry in entries}) != len(entries):
                    raise self._error(f"{where} has two {side} of the same name")
