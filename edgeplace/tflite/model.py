"""The immutable description of a ``.tflite`` file that the rest of EdgePlace works with.

These types hold facts only. ``reader`` makes them from a checked file, ``cutter`` makes new files from them.
Operators, tensors and buffers keep the numbers they have in the file, so that every message, map and table speaks
of the same things as any other TFLite tool.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

BITS_PER_ELEMENT: Mapping[str, int] = MappingProxyType(
    {
        "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16, "complex64": 64, "complex128": 128,
        "int64": 64, "uint64": 64, "int32": 32, "uint32": 32, "int16": 16, "uint16": 16, "int8": 8, "uint8": 8,
        "bool": 8, "int4": 4, "int2": 2, "uint4": 4, "float8_e4m3fn": 8, "float8_e5m2": 8,
    }
)  # fmt: skip
"""Bits per element of each TFLite type; ``string``, ``resource`` and ``variant`` have no fixed size."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """Affine quantization of a tensor: ``real = scale * (q - zero_point)``, per tensor or along ``axis``."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a subgraph.

    ``shape`` is the concrete shape in the file; ``shape_signature`` has -1 where the file says a dimension may
    change (empty when the file has no signature). ``is_constant`` means its buffer carries data.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    buffer: int
    is_constant: bool
    shape_signature: tuple[int, ...] = ()
    is_variable: bool = False
    is_sparse: bool = False
    quantization: Quantization | None = None

    @property
    def elements(self) -> int:
        """Number of elements of the concrete shape."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of the dense tensor, 0 for types without a fixed size."""
        return (self.elements * BITS_PER_ELEMENT.get(self.dtype, 0) + 7) // 8


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a subgraph.

    Attributes:
        op_type: The builtin operator's name (``CONV_2D``), or ``CUSTOM``.
        custom_code: The name of a custom operator, else empty.
        inputs: Tensor numbers; -1 is an optional input that is not given.
        subgraphs: Subgraphs it calls (WHILE, IF, CALL_ONCE, STABLEHLO_COMPOSITE ...).
        resource: For VAR_HANDLE and HASHTABLE, the name of the state it opens, else empty.
        options: Its builtin options by field name (scalars and small tuples), for cost features and display.
    """

    index: int
    op_type: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    custom_code: str = ""
    subgraphs: tuple[int, ...] = ()
    resource: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subgraph:
    """One graph of the file. Number 0 is the one that runs when no signature is named."""

    index: int
    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """A named entry: which subgraph runs, and the names of its inputs and outputs (name -> tensor number)."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
