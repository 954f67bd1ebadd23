"""What the graph layer knows about operator types: which carry state, which sizes depend on data, which are cheap.

Facts of the published TFLite kernels (what ``Prepare`` does with each operator), by builtin operator name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

STATE_OPS = frozenset(
    {
        "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT",
        "HASHTABLE_SIZE", "CALL_ONCE",
    }
)  # fmt: skip
"""Operators on resources: they read or change what outlives a run."""

CONTROL_FLOW_OPS = frozenset({"IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE"})
"""Operators that run other subgraphs of the file."""

RANDOM_OPS = frozenset(
    {"RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL", "STABLEHLO_RNG_BIT_GENERATOR"}
)
"""Operators that give something new in each run."""

CUSTOM_OPS = frozenset({"CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"})
"""Operators of which only a platform that claims them knows what they do."""

SIZE_INPUTS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "ARG_MAX": (1,), "ARG_MIN": (1,), "BATCH_TO_SPACE_ND": (1, 2), "BROADCAST_TO": (1,),
        "CONV_3D_TRANSPOSE": (0,), "EMBEDDING_LOOKUP_SPARSE": (2,), "EXPAND_DIMS": (1,), "FILL": (0,),
        "MEAN": (1,), "MIRROR_PAD": (1,), "MULTINOMIAL": (1,), "NON_MAX_SUPPRESSION_V4": (2,),
        "NON_MAX_SUPPRESSION_V5": (2,), "ONE_HOT": (1,), "PAD": (1,), "PADV2": (1,),
        "RANDOM_STANDARD_NORMAL": (0,), "RANDOM_UNIFORM": (0,), "RANGE": (0, 1, 2), "REDUCE_ALL": (1,),
        "REDUCE_ANY": (1,), "REDUCE_MAX": (1,), "REDUCE_MIN": (1,), "REDUCE_PROD": (1,), "RESHAPE": (1,),
        "RESIZE_BILINEAR": (1,), "RESIZE_NEAREST_NEIGHBOR": (1,), "RFFT2D": (1,), "SCATTER_ND": (2,),
        "SEGMENT_SUM": (1,), "SLICE": (1, 2), "SPACE_TO_BATCH_ND": (1, 2), "SPARSE_TO_DENSE": (1,), "SPLIT": (0,),
        "SPLIT_V": (1, 2), "STRIDED_SLICE": (1, 2, 3), "SUM": (1,), "TILE": (1,), "TOPK_V2": (1,),
        "TRANSPOSE": (1,), "TRANSPOSE_CONV": (0,), "UNIQUE": (0,), "UNSORTED_SEGMENT_MAX": (2,),
        "UNSORTED_SEGMENT_MIN": (2,), "UNSORTED_SEGMENT_PROD": (2,), "UNSORTED_SEGMENT_SUM": (2,), "WHERE": (0,),
    }
)  # fmt: skip
"""Input positions whose *values* set the shape of what the operator makes. (UNIQUE and WHERE: their data does.)"""

RESIZING_OPS = frozenset({"BROADCAST_TO", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "RESHAPE"})
"""Operators whose output shape is given by the size inputs alone, whatever shape the data has (RESHAPE: without -1)."""

SHAPE_READING_OPS = frozenset({"SHAPE", "RANK"})
"""Operators that read the shape of their input and not its data."""

GLUE_OPS = frozenset(
    {
        "CAST", "CONCATENATION", "DEQUANTIZE", "EXPAND_DIMS", "FAKE_QUANT", "PACK", "PAD", "PADV2", "QUANTIZE",
        "RESHAPE", "SHAPE", "SLICE", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TRANSPOSE", "UNPACK",
    }
)  # fmt: skip
"""Operators that only move, convert or rename data: alone on a platform they cannot pay for a hand-over."""

HOST_OPS = frozenset(
    {
        "ARG_MAX", "ARG_MIN", "BUCKETIZE", "CUMSUM", "DENSIFY", "EMBEDDING_LOOKUP", "EMBEDDING_LOOKUP_SPARSE",
        "GATHER", "GATHER_ND", "HASHTABLE_LOOKUP", "LSH_PROJECTION", "MULTINOMIAL", "NON_MAX_SUPPRESSION_V4",
        "NON_MAX_SUPPRESSION_V5", "ONE_HOT", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "RANGE",
        "REVERSE_SEQUENCE", "RFFT2D", "SCATTER_ND", "SEGMENT_SUM", "SKIP_GRAM", "SPARSE_TO_DENSE", "TOPK_V2",
        "UNIQUE", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN", "UNSORTED_SEGMENT_PROD",
        "UNSORTED_SEGMENT_SUM", "WHERE",
    }
)  # fmt: skip
"""Operators that accelerators seldom take: keeping them apart from the rest is what a placement profits from."""

FUSED_OPS = frozenset(
    {
        "ABS", "ADD", "ADD_N", "CEIL", "COS", "DIV", "ELU", "EQUAL", "EXP", "FLOOR", "FLOOR_DIV", "FLOOR_MOD", "GELU",
        "GREATER", "GREATER_EQUAL", "HARD_SWISH", "LEAKY_RELU", "LESS", "LESS_EQUAL", "LOG", "LOGICAL_AND",
        "LOGICAL_NOT", "LOGICAL_OR", "LOGISTIC", "MAXIMUM", "MINIMUM", "MUL", "NEG", "NOT_EQUAL", "POW", "PRELU",
        "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SELECT", "SELECT_V2", "SIGN", "SIN", "SQRT",
        "SQUARE", "SQUARED_DIFFERENCE", "SUB", "TANH",
    }
)  # fmt: skip
"""Element-wise operators: backends fuse them into what makes their input."""
