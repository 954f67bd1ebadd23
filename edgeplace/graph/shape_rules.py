"""Whether the concrete shape that a file gives an output can be believed.

Where the file leaves the size open (-1) the concrete shape has to follow from the shapes the operator reads; a rule
that does not know says no. Where it does not, the shape is believed unless it cannot be (files that leave shapes out
read as scalars).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgeplace.graph.ops import FUSED_OPS
from edgeplace.tflite.model import Operator, Tensor

if TYPE_CHECKING:
    from edgeplace.tflite.reader import Model

_BATCH_CHANGING_OPS = frozenset(
    {
        "BATCH_TO_SPACE_ND", "BROADCAST_TO", "CONCATENATION", "FILL", "GATHER", "GATHER_ND", "MIRROR_PAD",
        "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "PAD", "PADV2", "RANGE", "SCATTER_ND", "SLICE",
        "SPACE_TO_BATCH_ND", "SPARSE_TO_DENSE", "SPLIT", "SPLIT_V", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
    }
)  # fmt: skip
"""Operators whose output may have another first dimension than their input."""

_SHAPE_KEEPING_OPS = FUSED_OPS | {
    "CAST", "CUMSUM", "DEQUANTIZE", "FAKE_QUANT", "L2_NORMALIZATION", "LOCAL_RESPONSE_NORMALIZATION", "LOG_SOFTMAX",
    "QUANTIZE", "REVERSE_V2", "SOFTMAX", "ZEROS_LIKE",
}  # fmt: skip
"""Operators that give the (broadcast) shape of what they read."""


_NEVER_SCALAR_OPS = frozenset(
    {
        "AVERAGE_POOL_2D", "BATCH_MATMUL", "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN",
        "CONCATENATION", "CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "LSTM", "MAX_POOL_2D", "PACK",
        "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "RNN", "SVDF", "TRANSPOSE_CONV",
        "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN",
    }
)  # fmt: skip
"""Operators whose output has dimensions whatever they read."""


def follows(model: Model, operator: Operator, tensors: Sequence[Tensor], output: int) -> bool:
    """Whether output ``output`` has, on the shapes the operator reads, the concrete shape it is said to have."""
    rule = _RULES.get(operator.op_type)
    if rule is not None and rule(model, operator, tensors, output):
        return True
    if operator.op_type in _SHAPE_KEEPING_OPS:
        return _keeps_shape(model, operator, tensors, output)
    return _keeps_batch(operator, tensors, output)


def contradicts(model: Model, operator: Operator, tensors: Sequence[Tensor], output: int) -> bool:
    """Whether the operator cannot make that shape from the shapes it reads."""
    made = tensors[output]
    given = [tensors[number].shape for number in operator.inputs if number >= 0]
    if operator.op_type in _SHAPE_KEEPING_OPS:
        return made.shape not in given and not _keeps_shape(model, operator, tensors, output)
    return made.shape == () and operator.op_type in _NEVER_SCALAR_OPS


def _keeps_batch(operator: Operator, tensors: Sequence[Tensor], output: int) -> bool:
    """Only the first dimension is open, it is the batch of what is read, and the operator leaves the batch alone."""
    made = tensors[output]
    if operator.op_type in _BATCH_CHANGING_OPS or operator.op_type == "RESHAPE" or not made.shape:
        return False
    if any(extent < 0 for extent in made.shape_signature[1:]):
        return False
    batches = [
        tensors[number].shape[0]
        for number in operator.inputs
        if number >= 0 and tensors[number].shape_signature[:1] == (-1,) and tensors[number].shape
    ]
    return bool(batches) and all(batch == made.shape[0] for batch in batches)


def _keeps_shape(model: Model, operator: Operator, tensors: Sequence[Tensor], output: int) -> bool:
    shapes = [tensors[number].shape for number in operator.inputs if number >= 0]
    try:
        return bool(np.broadcast_shapes(*shapes) == tensors[output].shape)
    except ValueError:
        return False


def _keeps_elements(model: Model, operator: Operator, tensors: Sequence[Tensor], output: int) -> bool:
    """RESHAPE: as many elements as before, and one open dimension, which that number settles."""
    made = tensors[output]
    given = tensors[operator.inputs[0]]
    return made.elements == given.elements and sum(extent < 0 for extent in made.shape_signature) == 1


def _is_concatenated(model: Model, operator: Operator, tensors: Sequence[Tensor], output: int) -> bool:
    shapes = [tensors[number].shape for number in operator.inputs if number >= 0]
    made = tensors[output].shape
    axis = int(operator.options.get("axis", 0))
    if len({len(shape) for shape in shapes} | {len(made)}) != 1 or not -len(made) <= axis < len(made):
        return False
    axis %= len(made)
    expected = list(shapes[0])
    expected[axis] = sum(shape[axis] for shape in shapes)
    return tuple(expected) == made


def _is_padded(model: Model, operator: Operator, tensors: Sequence[Tensor], output: int) -> bool:
    paddings = _constant_numbers(model, tensors, operator.inputs[1])
    shape = tensors[operator.inputs[0]].shape
    if paddings is None or paddings.size != 2 * len(shape):
        return False
    return tuple(np.add(shape, paddings.reshape(-1, 2).sum(axis=1)).tolist()) == tensors[output].shape


def _is_transposed(model: Model, operator: Operator, tensors: Sequence[Tensor], output: int) -> bool:
    axes = _constant_numbers(model, tensors, operator.inputs[1])
    shape = tensors[operator.inputs[0]].shape
    if axes is None or sorted(axes.tolist()) != list(range(len(shape))):
        return False
    return tuple(shape[axis] for axis in axes.tolist()) == tensors[output].shape


def _is_split(model: Model, operator: Operator, tensors: Sequence[Tensor], output: int) -> bool:
    """SPLIT into equal parts: together they have the elements of the whole, and only the batch is open."""
    made = tensors[output]
    whole = tensors[operator.inputs[1]]
    if any(extent < 0 for extent in made.shape_signature[1:]) or made.shape[:1] != whole.shape[:1]:
        return False
    return math.prod(made.shape) * len(operator.outputs) == whole.elements


def _is_strided(model: Model, operator: Operator, tensors: Sequence[Tensor], output: int) -> bool:
    """STRIDED_SLICE that takes the whole batch (both ends masked, step 1) and leaves it open alone."""
    made = tensors[output]
    given = tensors[operator.inputs[0]]
    steps = _constant_numbers(model, tensors, operator.inputs[3]) if len(operator.inputs) > 3 else None
    whole_batch = operator.options.get("begin_mask", 0) & 1 and operator.options.get("end_mask", 0) & 1
    added = operator.options.get("new_axis_mask", 0) | operator.options.get("ellipsis_mask", 0)
    if steps is None or not whole_batch or added or steps[0] != 1:
        return False
    return made.shape[:1] == given.shape[:1] and all(extent >= 0 for extent in made.shape_signature[1:])


def _constant_numbers(
    model: Model, tensors: Sequence[Tensor], number: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """The integers of a constant tensor, ``None`` when it is not one."""
    tensor = tensors[number]
    if number < 0 or not tensor.is_constant or tensor.dtype not in ("int32", "int64"):
        return None
    return np.frombuffer(model.constant(tensor.buffer), tensor.dtype).astype(np.int64).reshape(-1)


_Rule = Callable[["Model", Operator, Sequence[Tensor], int], bool]
_RULES: Mapping[str, _Rule] = {
    "CONCATENATION": _is_concatenated,
    "MIRROR_PAD": _is_padded,
    "PAD": _is_padded,
    "PADV2": _is_padded,
    "RESHAPE": _keeps_elements,
    "SPLIT": _is_split,
    "STRIDED_SLICE": _is_strided,
    "TRANSPOSE": _is_transposed,
}
