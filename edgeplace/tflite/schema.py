"""The generated flatbuffer classes of the TFLite schema; the only module that imports them.

``fb`` is the generated module: readers (``Model``), object API (``ModelT``) and enumerations. Everything made with it
stays inside ``edgeplace.tflite`` and the model builder of ``edgeplace.testing``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import flatbuffers
from ai_edge_litert import schema_py_generated as _generated

fb: Any = _generated
FILE_IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3


def _names(enumeration: type) -> MappingProxyType[int, str]:
    """Number -> name of a generated enumeration."""
    return MappingProxyType(
        {value: name for name, value in vars(enumeration).items() if not name.startswith("_")}
    )


OPERATOR_NAMES = _names(fb.BuiltinOperator)
TENSOR_TYPE_NAMES = MappingProxyType({value: name.lower() for value, name in _names(fb.TensorType).items()})
TENSOR_TYPES = MappingProxyType({name: value for value, name in TENSOR_TYPE_NAMES.items()})
PLACEHOLDER_FOR_GREATER_CODES = 127
"""What ``deprecated_builtin_code`` (a byte) holds when the operator's code does not fit in it."""


def operator_code(code: Any) -> int:
    """The builtin code of an ``OperatorCode(T)``: files before schema 3a have only the byte field, later ones both.

    Source: the schema's comment on ``OperatorCode``; the runtime takes the greater of the two.
    """
    return max(int(code.deprecatedBuiltinCode), int(code.builtinCode))


def pack(model: Any, initial_bytes: int = 1024) -> bytearray:
    """A ``ModelT`` as the bytes of a file."""
    builder = flatbuffers.Builder(initial_bytes)
    builder.Finish(model.Pack(builder), FILE_IDENTIFIER)
    packed: bytearray = builder.Output()
    return packed
