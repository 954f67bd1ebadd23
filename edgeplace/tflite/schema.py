"""The generated flatbuffer classes of the TFLite schema, for writing models by hand; the only importer of them.

Reading and cutting do without them (see :mod:`edgeplace.tflite.schema_types`). ``fb`` is the generated module with its
object API (``ModelT`` ...).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import flatbuffers
from ai_edge_litert import schema_py_generated as _generated

from edgeplace.tflite.schema_types import FILE_IDENTIFIER, SCHEMA_VERSION, TENSOR_TYPE_NAMES

fb: Any = _generated
TENSOR_TYPES = MappingProxyType({name: number for number, name in TENSOR_TYPE_NAMES.items()})
"""Tensor type name -> number."""
PLACEHOLDER_FOR_GREATER_CODES = 127
"""What ``deprecated_builtin_code`` (a byte) holds when the operator's code does not fit in it."""

__all__ = ["PLACEHOLDER_FOR_GREATER_CODES", "SCHEMA_VERSION", "TENSOR_TYPES", "fb", "pack"]


def pack(model: Any, initial_bytes: int = 1024) -> bytearray:
    """A ``ModelT`` as the bytes of a file."""
    builder = flatbuffers.Builder(initial_bytes)
    builder.Finish(model.Pack(builder), FILE_IDENTIFIER)
    packed: bytearray = builder.Output()
    return packed
