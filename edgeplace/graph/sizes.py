"""Which tensors have a size that is known before the run, and which values are.

A tensor cannot be sized ahead when its shape depends on data (WHERE, UNIQUE, a RESHAPE to a computed shape ...), or
when the file leaves it open and its concrete shape there is only a filler, or when it is made from such a tensor.

What is *not* dynamic: a batch dimension of -1 in the shape signature with a concrete shape beside it (every MLPerf
Tiny model has those), and a shape that is computed from the known shape of another tensor (SHAPE -> STRIDED_SLICE ->
PACK -> RESHAPE), because those values are fixed once the input shapes are.

About open sizes: converters write 1 wherever a dimension is -1, also where the kernel will make something else (a PAD
of an open height, a RESHAPE of batch times width). So the filler is believed only where it follows from the shapes
the operator reads. Shapes that were found by allocating the model replace all fillers (``build_graph(shapes=...)``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgeplace.graph.ops import (
    CONTROL_FLOW_OPS,
    CUSTOM_OPS,
    RANDOM_OPS,
    RESIZING_OPS,
    SHAPE_READING_OPS,
    SIZE_INPUTS,
    STATE_OPS,
)
from edgeplace.graph.shape_rules import contradicts, follows
from edgeplace.tflite.model import Operator, Tensor

if TYPE_CHECKING:
    from edgeplace.tflite.reader import Model

HANDLE_TYPES = frozenset({"resource", "variant"})
"""Types whose value is a handle inside one interpreter."""


@dataclass(frozen=True)
class SizeFacts:
    """What is known before the run about the tensors of one subgraph.

    Attributes:
        dynamic: Tensor number -> why its size is not known ahead.
        known: Tensors whose values are known ahead: constants and what is computed from constants and known shapes.
        doubtful: Those of ``dynamic`` that are only so because the file's own shape cannot be believed; allocating
            the model tells their true one.
    """

    dynamic: Mapping[int, str]
    known: frozenset[int]
    doubtful: frozenset[int]


def size_facts(
    model: Model,
    operators: Iterable[Operator],
    tensors: Sequence[Tensor],
    dynamic_inputs: Mapping[int, str] | None = None,
    *,
    calling: tuple[int, ...] = (),
) -> SizeFacts:
    """Walk the operators once and say what is dynamic.

    Args:
        operators: The subgraph's operators in execution order.
        dynamic_inputs: Subgraph inputs whose size is not known, with the reason.
        calling: The subgraphs that are being walked already (a subgraph that calls itself is taken as dynamic).
    """
    dynamic: dict[int, str] = dict(dynamic_inputs or {})
    known = {tensor.index for tensor in tensors if tensor.is_constant and not tensor.is_variable}
    doubtful: set[int] = set()
    for operator in operators:
        dynamic.update(_dynamic_outputs(model, operator, tensors, dynamic, known, calling))
        for number in operator.outputs:
            if number >= 0 and number not in dynamic and (doubt := _doubt(model, operator, tensors, number)):
                dynamic[number] = doubt
                doubtful.add(number)
        if is_foldable(operator, tensors) and _is_known(operator, dynamic, known):
            known.update(operator.outputs)
    return SizeFacts(dynamic, frozenset(known), frozenset(doubtful))


def is_foldable(operator: Operator, tensors: Sequence[Tensor]) -> bool:
    """Whether equal inputs give equal outputs and nothing else happens: no state, calls, chance or unknown code."""
    if operator.op_type in STATE_OPS | CONTROL_FLOW_OPS | RANDOM_OPS | CUSTOM_OPS or operator.subgraphs:
        return False
    touched = [tensors[number] for number in (*operator.inputs, *operator.outputs) if number >= 0]
    return not any(tensor.is_variable or tensor.dtype in HANDLE_TYPES for tensor in touched)


def _is_known(operator: Operator, dynamic: Mapping[int, str], known: set[int]) -> bool:
    given = [number for number in operator.inputs if number >= 0]
    if operator.op_type in SHAPE_READING_OPS:
        return all(number not in dynamic for number in given)
    return all(number in known for number in given)


def _dynamic_outputs(
    model: Model,
    operator: Operator,
    tensors: Sequence[Tensor],
    dynamic: Mapping[int, str],
    known: set[int],
    calling: tuple[int, ...],
) -> dict[int, str]:
    """The outputs of one operator that cannot be sized ahead, with the reason."""
    if operator.subgraphs and operator.op_type != "CALL_ONCE":
        return _dynamic_call_outputs(model, operator, tensors, dynamic, calling)
    for position in SIZE_INPUTS.get(operator.op_type, ()):
        number = operator.inputs[position] if position < len(operator.inputs) else -1
        if number >= 0 and number not in known:
            reason = (
                f"{operator.op_type} {operator.index} takes its size from computed {named(tensors[number])}"
            )
            return dict.fromkeys(operator.outputs, reason)
    if operator.op_type not in SHAPE_READING_OPS and not _is_resized_whole(model, operator, tensors, known):
        for number in operator.inputs:
            if number in dynamic:
                return dict.fromkeys(operator.outputs, dynamic[number])
    return {}


def _doubt(model: Model, operator: Operator, tensors: Sequence[Tensor], output: int) -> str:
    """Why the concrete shape that the file gives an output cannot be believed, empty when it can."""
    tensor = tensors[output]
    maker = f"made by {operator.op_type} {operator.index}"
    if any(extent < 0 for extent in tensor.shape_signature):
        if not follows(model, operator, tensors, output):
            return f"the file leaves the size of {named(tensor)} open, {maker}"
    elif contradicts(model, operator, tensors, output):
        return f"the file gives {named(tensor)} the shape {list(tensor.shape)}, which cannot be, {maker}"
    return ""


def _is_resized_whole(model: Model, operator: Operator, tensors: Sequence[Tensor], known: set[int]) -> bool:
    """Whether the output's shape does not depend on the shape of the data."""
    if operator.op_type not in RESIZING_OPS:
        return False
    if operator.op_type != "RESHAPE":
        return True
    if len(operator.inputs) > 1 and operator.inputs[1] in known:
        shape = tensors[operator.inputs[1]]
        if not shape.is_constant:
            return False  # known ahead, yet not here: it may hold a -1
        return bool(np.all(np.frombuffer(model.constant(shape.buffer), np.int32) >= 0))
    wanted = operator.options.get("new_shape") or (-1,)
    return all(extent >= 0 for extent in wanted)


def _dynamic_call_outputs(
    model: Model,
    operator: Operator,
    tensors: Sequence[Tensor],
    dynamic: Mapping[int, str],
    calling: tuple[int, ...],
) -> dict[int, str]:
    """Outputs of control flow: dynamic where a called subgraph makes them so, or where two of them disagree."""
    given = operator.inputs[1:] if operator.op_type == "IF" else operator.inputs
    if any(called in calling for called in operator.subgraphs):
        return dict.fromkeys(operator.outputs, f"{operator.op_type} {operator.index} calls itself")
    # The condition of a WHILE makes no output.
    bodies = (
        operator.subgraphs[1:] if operator.op_type in ("WHILE", "STABLEHLO_WHILE") else operator.subgraphs
    )
    found: dict[int, str] = {}
    for body in bodies:
        found |= _dynamic_body_outputs(model, operator, body, given, dynamic, calling)
    shapes = [
        [_promised_shape(model.subgraphs[body].tensors[number]) for number in model.subgraphs[body].outputs]
        for body in bodies
    ]
    if operator.op_type in ("WHILE", "STABLEHLO_WHILE"):
        shapes += [
            [
                _promised_shape(model.subgraphs[body].tensors[number])
                for number in model.subgraphs[body].inputs
            ]
            for body in bodies
        ]
    for output, variants in zip(operator.outputs, zip(*shapes, strict=False), strict=False):
        if len(set(variants)) > 1:
            found.setdefault(
                output,
                f"{operator.op_type} {operator.index} makes {named(tensors[output])} in several shapes",
            )
    return found


def _dynamic_body_outputs(
    model: Model,
    operator: Operator,
    body: int,
    given: Sequence[int],
    dynamic: Mapping[int, str],
    calling: tuple[int, ...],
) -> dict[int, str]:
    subgraph = model.subgraphs[body]
    arriving = {
        inner: dynamic[outer]
        for inner, outer in zip(subgraph.inputs, given, strict=False)
        if outer in dynamic
    }
    is_loop = operator.op_type in ("WHILE", "STABLEHLO_WHILE")
    while True:
        facts = size_facts(model, subgraph.operators, subgraph.tensors, arriving, calling=(*calling, body))
        # What a loop's body makes is what its next turn gets.
        again = {
            inner: facts.dynamic[made]
            for inner, made in zip(subgraph.inputs, subgraph.outputs, strict=False)
            if is_loop and made in facts.dynamic and inner not in arriving
        }
        if not again:
            break
        arriving |= again
    outside = set(dynamic.values())
    return {
        outer: reason if reason in outside else f"in subgraph {body}, {reason}"
        for outer, inner in zip(operator.outputs, subgraph.outputs, strict=False)
        if (reason := facts.dynamic.get(inner))
    }


def _promised_shape(tensor: Tensor) -> tuple[int, ...]:
    return tensor.shape_signature or tensor.shape


def named(tensor: Tensor) -> str:
    """How messages speak of a tensor."""
    return f"tensor {tensor.index} '{tensor.name}'" if tensor.name else f"tensor {tensor.index}"
