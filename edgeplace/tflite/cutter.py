"""Cut operators out of a model into a stand-alone ``.tflite`` file.

The cutter writes what it is told to: these operators in this order, these tensors as inputs and outputs. Which cuts
are right (state, constant producers, cycles) is for ``graph`` and ``placement`` to know. It keeps every field of what
it takes along, and takes along no more than is needed: tensors, buffers and operator codes in use, and the subgraphs
that control flow calls, however deep.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from edgeplace.errors import ModelError
from edgeplace.tflite.encoder import Encoder
from edgeplace.tflite.reader import Model
from edgeplace.tflite.schema_types import SCHEMA_VERSION, Table, new_table
from edgeplace.tflite.segment_file import ConstantRef, SegmentFile, splice
from edgeplace.tflite.verifier import called_subgraphs, numbers_of, subgraph_fields, tables_of

KEPT_METADATA = ("min_runtime_version", "reduced_precision_support")
"""Metadata that says how a runtime may run the operators; the rest describes the whole model and stays there."""

SIGNATURE_KEY = "serving_default"


def cut(
    model: Model,
    subgraph: int,
    nodes: Sequence[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    *,
    shapes: Mapping[int, tuple[int, ...]] | None = None,
    name: str = "",
) -> SegmentFile:
    """Write some operators of a subgraph as a file of their own.

    The file has one signature, ``serving_default``, whose inputs are called ``in0``, ``in1`` ... and whose outputs
    ``out0`` ... in the order given here (with leading zeros from ten on, so that sorting the names keeps the order).
    Tensors keep their names. The same arguments give the same bytes.

    Args:
        model: The source model.
        subgraph: Which of its subgraphs.
        nodes: Operator numbers in the order they are to run.
        inputs: Tensor numbers the file takes, in order.
        outputs: Tensor numbers the file gives, in order. An input or a constant may be among them, also twice.
        shapes: Concrete shapes that replace those in the model, by tensor number; they lose their shape signature.
        name: Name of the main subgraph, for people.

    Returns:
        The file as skeleton and views of the model's constants.

    Raises:
        ModelError: The result would be larger than a flatbuffer can be (2 GB).
        IndexError: A number is not one of the model's.
    """
    cutting = _Cutting(model)
    cutting.main(subgraph, nodes, inputs, outputs, shapes or {}, name)
    try:
        encoded = Encoder(cutting.finish())
    except OverflowError:
        raise ModelError(
            f"{len(nodes)} operators with their weights are over 2 GB, too much for one file",
            where=model.name,
            hint="cut the model into more segments",
        ) from None
    return _segment_file(encoded, model, cutting.buffers)


class _Cutting:
    """The new model while it is put together: its tables, and old number -> new number of what it has so far.

    Attributes:
        buffers: Old number -> new number of the buffers it takes along.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._source = model.table
        self.buffers: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._subgraphs: dict[int, int] = {}  # called subgraphs: old number -> new
        self._written: list[Table] = []
        self._main_inputs: list[int] = []
        self._main_outputs: list[int] = []
        self._metadata: list[Table] = []

    def main(
        self,
        subgraph: int,
        nodes: Sequence[int],
        inputs: Sequence[int],
        outputs: Sequence[int],
        shapes: Mapping[int, tuple[int, ...]],
        name: str,
    ) -> None:
        """Write the entry subgraph and every subgraph it calls."""
        graph = tables_of(self._source["subgraphs"])[subgraph]
        operators = [tables_of(graph["operators"])[node] for node in nodes]
        entry = self._graph(graph, operators, inputs, outputs, shapes)
        self._written.insert(0, entry.but(name=name or graph["name"] or "main"))
        self._main_inputs = numbers_of(entry["inputs"])
        self._main_outputs = numbers_of(entry["outputs"])
        done = 0
        while done < len(self._subgraphs):  # writing one may find further ones
            called = tables_of(self._source["subgraphs"])[list(self._subgraphs)[done]]
            self._written.append(
                self._graph(
                    called,
                    tables_of(called["operators"]),
                    numbers_of(called["inputs"]),
                    numbers_of(called["outputs"]),
                    {},
                )
            )
            done += 1
        for key in KEPT_METADATA:
            self._keep_metadata(key)

    def finish(self) -> Table:
        """The new root table."""
        old_codes, old_buffers = tables_of(self._source["operator_codes"]), tables_of(self._source["buffers"])
        signature = new_table(
            "SignatureDef",
            signature_key=SIGNATURE_KEY,
            inputs=_tensor_maps("in", self._main_inputs),
            outputs=_tensor_maps("out", self._main_outputs),
        )
        return new_table(
            "Model",
            version=SCHEMA_VERSION,
            description=self._model.description or None,
            operator_codes=[old_codes[number] for number in self._codes],
            subgraphs=self._written,
            buffers=[
                # Buffer 0 is "no data" for every runtime, in every file.
                new_table("Buffer"),
                *(self._buffer(number, old_buffers[number]) for number in self.buffers),
            ],
            signature_defs=[signature],
            metadata=self._metadata or None,
        )

    def _buffer(self, number: int, old: Table) -> Table:
        # A buffer behind the flatbuffer (files over 2 GB) comes inside here.
        return old.but(data=self._model.constant(number), offset=None, size=None)

    def _keep_metadata(self, key: str) -> None:
        for entry in tables_of(self._source["metadata"]):
            if entry["name"] == key and len(self._model.constant(entry["buffer"])):
                self._metadata.append(entry.but(buffer=self._new_buffer(entry["buffer"])))
                return

    def _new_buffer(self, number: int) -> int:
        if number == 0 or len(self._model.constant(number)) == 0:
            return 0
        return self.buffers.setdefault(number, len(self.buffers) + 1)

    def _graph(
        self,
        graph: Table,
        operators: Sequence[Table],
        inputs: Sequence[int],
        outputs: Sequence[int],
        shapes: Mapping[int, tuple[int, ...]],
    ) -> Table:
        tensors = tables_of(graph["tensors"])
        numbers = _needed_tensors(tensors, operators, [*inputs, *outputs])
        return graph.but(
            tensors=[self._tensor(tensors[old], numbers, shapes.get(old)) for old in numbers],
            inputs=[numbers[tensor] for tensor in inputs],
            outputs=[numbers[tensor] for tensor in outputs],
            operators=[self._operator(operator, numbers) for operator in operators],
            debug_metadata_index=None,
        )

    def _tensor(self, old: Table, numbers: Mapping[int, int], shape: tuple[int, ...] | None) -> Table:
        new = old.but(buffer=self._new_buffer(old["buffer"]))
        if shape is not None:
            new = new.but(shape=list(shape), shape_signature=None)
        blocks = _block_quantization(old)
        if blocks is not None:
            renumbered = {field: numbers[blocks[field]] for field in _block_tensors(blocks)}
            new = new.but(quantization=old["quantization"].but(details=blocks.but(**renumbered)))
        return new

    def _operator(self, old: Table, numbers: Mapping[int, int]) -> Table:
        new = old.but(
            opcode_index=self._codes.setdefault(old["opcode_index"], len(self._codes)),
            inputs=_renumbered(old["inputs"], numbers),
            outputs=_renumbered(old["outputs"], numbers),
            intermediates=_renumbered(old["intermediates"], numbers),
            debug_metadata_index=None,
        )
        if old["large_custom_options_offset"] > 1:
            start = old["large_custom_options_offset"]
            options = self._model.data[start : start + old["large_custom_options_size"]]
            new = new.but(
                custom_options=options, large_custom_options_offset=None, large_custom_options_size=None
            )
        for called in called_subgraphs(old):
            self._subgraphs.setdefault(called, len(self._subgraphs) + 1)
        for union in ("builtin_options", "builtin_options2"):
            if old[union] is not None:
                new = new.but(**{union: self._options(old[union])})
        return new

    def _options(self, old: Table) -> Table:
        """Operator options with the numbers of called subgraphs renewed."""
        changes: dict[str, int | list[int]] = {}
        for field, _ in subgraph_fields(old):
            if field in old.values or old.type.fields[field].kind == "scalar":
                value = old[field]
                if old.type.fields[field].kind == "scalar":
                    changes[field] = self._subgraphs.get(int(value), int(value))
                else:
                    changes[field] = [self._subgraphs.get(number, number) for number in numbers_of(value)]
        return old.but(**changes) if changes else old


def _needed_tensors(
    tensors: Sequence[Table], operators: Iterable[Table], given: Sequence[int]
) -> dict[int, int]:
    """Old number -> new number of the tensors that operators and interface use, in their old order."""
    needed = set(given)
    for operator in operators:
        for field in ("inputs", "outputs", "intermediates"):
            needed.update(numbers_of(operator[field]))
    needed.discard(-1)
    for number in list(needed):
        blocks = _block_quantization(tensors[number])
        if blocks is not None:
            needed.update(blocks[field] for field in _block_tensors(blocks))
    return {old: new for new, old in enumerate(sorted(needed))}


def _block_quantization(tensor: Table) -> Table | None:
    """The block-wise quantization of a tensor, whose scales and zero points are other tensors."""
    quantization = tensor["quantization"]
    details: Table | None = None if quantization is None else quantization["details"]
    return details if details is not None and details.type.name == "BlockwiseQuantization" else None


def _block_tensors(blocks: Table) -> Iterable[str]:
    """Its fields that name a tensor. Zero points of 0 mean "none" (0 is the field's default)."""
    if blocks["scales"] >= 0:
        yield "scales"
    if blocks["zero_points"] > 0:
        yield "zero_points"


def _renumbered(vector: object, numbers: Mapping[int, int]) -> list[int] | None:
    """Tensor numbers in the new file; -1 stays, an absent vector stays absent."""
    if vector is None:
        return None
    return [number if number == -1 else numbers[number] for number in numbers_of(vector)]


def _tensor_maps(prefix: str, tensors: Sequence[int]) -> list[Table]:
    digits = len(str(len(tensors) - 1))
    return [
        new_table("TensorMap", name=f"{prefix}{position:0{digits}}", tensor_index=tensor)
        for position, tensor in enumerate(tensors)
    ]


def _segment_file(encoded: Encoder, model: Model, buffers: Iterable[int]) -> SegmentFile:
    """Skeleton and constants as a recipe, with the hash of the file they make."""
    buffer_of = {id(model.constant(number)): number for number in buffers}
    constants = []
    data = {}
    for offset, view in encoded.constants:
        sha256 = model.constant_sha256(buffer_of[id(view)])
        constants.append(ConstantRef(sha256, offset, len(view)))
        data[sha256] = view
    skeleton = bytes(encoded.skeleton)
    digest = hashlib.sha256()
    for piece in splice(memoryview(skeleton), tuple(constants), data):
        digest.update(piece)
    return SegmentFile(digest.hexdigest(), encoded.size_bytes, skeleton, tuple(constants), data)
