"""Open a ``.tflite`` file: check it, describe it, and keep its constants as views of the file."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edgeplace.errors import ModelError
from edgeplace.tflite.decoder import decode
from edgeplace.tflite.model import Operator, Quantization, Signature, Subgraph, Tensor
from edgeplace.tflite.schema_types import FILE_IDENTIFIER, OPERATOR_NAMES, TENSOR_TYPE_NAMES, Table
from edgeplace.tflite.verifier import (
    buffer_data,
    called_subgraphs,
    numbers_of,
    operator_code,
    tables_of,
    verify,
)

_LONGEST_SHOWN_OPTION = 64
"""Vectors in operator options up to this length are shown as tuples; longer ones are data."""

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (
        0,
        b"PK\x03\x04",
        "a zip archive (a Keras .keras file, a .task or .litertlm bundle?); the model may be inside",
    ),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (a Keras .h5 model); convert it to .tflite first"),
    (0, b"\x08", "a protocol buffer (an ONNX model or a TensorFlow graph?); convert it to .tflite first"),
    (0, b"\x0a", "a protocol buffer (a TensorFlow SavedModel or frozen graph?); convert it to .tflite first"),
    (0, b"\x1f\x8b", "a gzip file; unpack it first"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull`"),
    (0, b"<", "a web page or XML, not a model; the download went wrong"),
    (0, b"{", "a JSON file"),
    (4, b"DWN1", "a DarwiNN executable (compiled for the Edge TPU); give the .tflite it was made from"),
)
"""What other files that people try look like: position, bytes, words."""


class Model:
    """One ``.tflite`` file, checked when it is made and never changed.

    Attributes:
        name: The file's name without folder.
        path: Where it was read from, ``None`` for bytes.
        sha256: Hash of the whole file.
        size_bytes: Size of the whole file.
        subgraphs: All graphs of the file.
        signatures: Its named entries, in file order (often none).
        metadata: Its metadata entries by name, as views of the file.
        description: The file's own words about itself.
        data: The whole file.
        table: The decoded file, with every field; for ``edgeplace.tflite`` only.
    """

    def __init__(self, data: memoryview, name: str, path: Path | None = None) -> None:
        """Check and describe the bytes of a file; :meth:`load` and :meth:`from_bytes` are the usual ways.

        Raises:
            ModelError: They are not a model, or a damaged one.
        """
        where = str(path or name)
        _refuse_other_files(data, where)
        table = decode(data, "Model", where)
        verify(table, data, where)
        self.name = name
        self.path = path
        self.size_bytes = len(data)
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.description: str = table["description"]
        self.data = data
        self.table = table
        self._buffers = [buffer_data(buffer, data) for buffer in tables_of(table["buffers"])]
        self._constant_hashes: dict[int, str] = {}
        self.metadata: Mapping[str, memoryview] = MappingProxyType(
            {entry["name"]: self._buffers[entry["buffer"]] for entry in tables_of(table["metadata"])}
        )
        self.subgraphs = tuple(
            self._subgraph(index, graph) for index, graph in enumerate(tables_of(table["subgraphs"]))
        )
        self.signatures = tuple(_signature(entry) for entry in tables_of(table["signature_defs"]))

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Open a file. It is mapped, not read: constants take memory only while they are looked at.

        The file must stay as it is while the model is in use; replacing it by a rename is fine, writing into it is not.

        Raises:
            ModelError: There is no such file, it cannot be opened, it is not a ``.tflite`` file, or it is damaged.
        """
        path = Path(path)
        data: Any = b""
        try:
            if (
                not path.is_dir() and path.exists() and not path.is_file()
            ):  # opening a pipe would wait for ever
                hint = "write it to a file first"
                raise ModelError("this is a device or a pipe, not a file", where=str(path), hint=hint)
            with path.open("rb") as stream:
                if os.fstat(stream.fileno()).st_size:
                    data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ModelError("there is no such file", where=str(path), hint=_look_alikes(path)) from None
        except IsADirectoryError:
            hint = "give the .tflite file itself"
            if (path / "saved_model.pb").exists():
                hint = "this is a TensorFlow SavedModel; convert it to .tflite first"
            raise ModelError("this is a folder, not a file", where=str(path), hint=hint) from None
        except PermissionError:
            hint = f"allow reading it: chmod a+r '{path}'"
            raise ModelError("no permission to read it", where=str(path), hint=hint) from None
        except (OSError, ValueError) as error:
            raise ModelError(f"it cannot be read: {error}", where=str(path)) from error
        return cls(memoryview(data), path.name, path)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, name: str = "model") -> Model:
        """Open a file that is in memory; it is not copied and must not change.

        Raises:
            ModelError: As :meth:`load`.
        """
        return cls(memoryview(data).toreadonly().cast("B"), name)

    def constant(self, buffer: int) -> memoryview:
        """A buffer's bytes, as a view of the file (empty when it carries none)."""
        return self._buffers[buffer]

    def constant_sha256(self, buffer: int) -> str:
        """Hash of a buffer's bytes, computed once."""
        if buffer not in self._constant_hashes:
            self._constant_hashes[buffer] = hashlib.sha256(self._buffers[buffer]).hexdigest()
        return self._constant_hashes[buffer]

    def _subgraph(self, index: int, graph: Table) -> Subgraph:
        operators = tuple(
            self._operator(number, operator) for number, operator in enumerate(tables_of(graph["operators"]))
        )
        inputs, outputs = tuple(numbers_of(graph["inputs"])), tuple(numbers_of(graph["outputs"]))
        made = {*inputs, *(tensor for operator in operators for tensor in operator.outputs)}
        tensors = tuple(
            self._tensor(number, tensor, number in made)
            for number, tensor in enumerate(tables_of(graph["tensors"]))
        )
        return Subgraph(index, graph["name"], tensors, operators, inputs, outputs)

    def _tensor(self, number: int, tensor: Table, made: bool) -> Tensor:
        shape = tuple(numbers_of(tensor["shape"]))
        buffer, variable = int(tensor["buffer"]), bool(tensor["is_variable"])
        # Buffer 0 means "no data" to every runtime. A tensor of no elements that nothing makes is a constant too:
        # its data are the empty bytes (the shape of a scalar, for one).
        empty = 0 in shape and not made and not variable
        is_constant = empty or (buffer != 0 and len(self._buffers[buffer]) > 0)
        return Tensor(
            index=number,
            name=tensor["name"],
            shape=shape,
            dtype=TENSOR_TYPE_NAMES[tensor["type"]],
            buffer=buffer,
            is_constant=is_constant,
            shape_signature=tuple(numbers_of(tensor["shape_signature"])),
            is_variable=variable,
            is_sparse=tensor["sparsity"] is not None,
            quantization=_quantization(tensor["quantization"]),
        )

    def _operator(self, number: int, operator: Table) -> Operator:
        code = tables_of(self.table["operator_codes"])[operator["opcode_index"]]
        options = _shown_options(operator)
        op_type = OPERATOR_NAMES[operator_code(code)]
        return Operator(
            index=number,
            op_type=op_type,
            version=code["version"],
            inputs=tuple(numbers_of(operator["inputs"])),
            outputs=tuple(numbers_of(operator["outputs"])),
            custom_code=code["custom_code"] if op_type == "CUSTOM" else "",
            subgraphs=called_subgraphs(operator),
            resource=_resource(op_type, options),
            options=options,
        )


def _refuse_other_files(data: memoryview, where: str) -> None:
    """Say what a file is that is not a ``.tflite`` file."""
    if len(data) == 0:
        raise ModelError("the file is empty", where=where, hint="the download or copy did not finish")
    if len(data) >= 8 and data[4:8] == FILE_IDENTIFIER:
        return
    for position, magic, words in _MAGIC:
        if data[position : position + len(magic)] == magic:
            raise ModelError("not a .tflite file", where=where, hint=f"it looks like {words}")
    found = bytes(data[4:8])
    raise ModelError(
        f"not a .tflite file: bytes 4 to 8 are {found!r}, not {FILE_IDENTIFIER!r}",
        where=where,
        hint="give a TFLite (LiteRT) flatbuffer model",
    )


def _look_alikes(path: Path) -> str:
    """A hint that names the models beside a path that does not exist."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if entry.suffix == ".tflite")
    except OSError:
        return f"there is no folder {path.parent} either"
    return f"in {path.parent}: {', '.join(names[:5])}" if names else f"no .tflite file is in {path.parent}"


def _quantization(table: Table | None) -> Quantization | None:
    if table is None or table["scale"] is None or len(table["scale"]) == 0:
        return None
    return Quantization(
        scales=tuple(table["scale"].tolist()),
        zero_points=tuple(numbers_of(table["zero_point"])),
        axis=table["quantized_dimension"],
    )


def _shown_options(operator: Table) -> Mapping[str, Any]:
    """Builtin options by field name: numbers, names and short vectors, with the defaults of absent fields."""
    shown: dict[str, Any] = {}
    for union in ("builtin_options", "builtin_options2"):
        table = operator[union]
        if table is None:
            continue
        for name, field in table.type.fields.items():
            value = table[name]
            if field.kind in ("scalar", "string"):
                shown[name] = value
            elif field.kind == "scalars" and value is not None and len(value) <= _LONGEST_SHOWN_OPTION:
                shown[name] = tuple(numbers_of(value))
    return MappingProxyType(shown)


def _resource(op_type: str, options: Mapping[str, Any]) -> str:
    """The name of the state an operator opens."""
    if op_type == "VAR_HANDLE":
        name, container = str(options.get("shared_name", "")), str(options.get("container", ""))
        return f"{container}/{name}" if container else name
    if op_type == "HASHTABLE":
        return f"hashtable {options.get('table_id', 0)}"
    return ""


def _signature(entry: Table) -> Signature:
    inputs, outputs = (
        MappingProxyType({item["name"]: int(item["tensor_index"]) for item in tables_of(entry[side])})
        for side in ("inputs", "outputs")
    )
    return Signature(entry["signature_key"], int(entry["subgraph_index"]), inputs, outputs)
