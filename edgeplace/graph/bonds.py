"""Which nodes must stay in one segment, and which constant producers go along with their readers.

A cut through state, handles or tensors that cannot be sized ahead gives wrong results or a crash of the runtime, so
what must not be cut is kept together, with the reason, and never refused. The rules are those of DESIGN section 4:

* state: what touches one variable tensor, one resource (by name, through handles, through CALL_ONCE and called
  subgraphs) or one stateful subgraph stays together,
* handles: tensors of type resource and variant never leave their interpreter, nor do types without an array form,
* size: a tensor whose size is not known before the run is read where it is made,
* type: a tensor that the kernel makes in another type than the file declares is read where it is made.

String tensors may cross: the interpreter API takes and gives them as arrays. Accelerators refuse such segments by
themselves, which shows when support is tried.

Control flow needs no rule: an operator that calls subgraphs is one node and takes them along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from edgeplace.graph.graph import Bond
from edgeplace.graph.ops import STATE_OPS
from edgeplace.graph.sizes import SizeFacts, is_foldable, named
from edgeplace.tflite.model import BITS_PER_ELEMENT, Operator, Tensor
from edgeplace.tflite.schema_types import TENSOR_TYPE_NAMES

if TYPE_CHECKING:
    from edgeplace.tflite.reader import Model

CROSSING_TYPES = (frozenset(BITS_PER_ELEMENT) | {"string"}) - {"int4", "uint4", "int2", "bfloat16"}
"""Types a tensor may have that goes from one segment to another: those numpy has arrays of."""

_DECLARED_TYPE_OPTION = {"ARG_MAX": "output_type", "ARG_MIN": "output_type", "SHAPE": "out_type"}
"""Operators whose kernel takes the output's type from an option, whatever the file declares for the tensor."""


def find_bonds(
    model: Model,
    operators: Sequence[Operator],
    tensors: Sequence[Tensor],
    consumers: Mapping[int, tuple[int, ...]],
    producer: Mapping[int, int],
    facts: SizeFacts,
) -> tuple[Bond, ...]:
    """Every reason why nodes of one subgraph must stay together.

    Args:
        operators: The subgraph's operators in execution order.
        tensors: Its tensors, with the shapes in force.
        facts: What is known about their sizes.
    """
    position = {operator.index: at for at, operator in enumerate(operators)}
    bonded: dict[str, set[int]] = {}
    for reason, nodes in _state_groups(model, operators, tensors, consumers):
        bonded.setdefault(reason, set()).update(nodes)
    for number, reason in _uncrossable(operators, tensors, facts):
        nodes = set(consumers.get(number, ()))
        if number in producer:
            nodes.add(producer[number])
        # One reason may be about many tensors: those that follow from one operator of unknown size are all made
        # from each other, so that their nodes hang together.
        if len(nodes) > 1:
            bonded.setdefault(reason, set()).update(nodes)
    return tuple(
        Bond(tuple(sorted(nodes, key=position.__getitem__)), reason) for reason, nodes in bonded.items()
    )


def constant_nodes(
    operators: Sequence[Operator], tensors: Sequence[Tensor], consumers: Mapping[int, tuple[int, ...]]
) -> frozenset[int]:
    """Nodes that make constants out of constants, for some node that reads more than constants.

    A constant producer that only leads to graph outputs (or nowhere) is not among them: it is a node like any other
    and has to run somewhere. One that leads to both is copied to its readers, and one of the copies is exported.

    Args:
        operators: The subgraph's operators in execution order.
    """
    made: set[int] = set()
    candidates: set[int] = set()
    for operator in operators:
        given = [number for number in operator.inputs if number >= 0]
        constant = all(tensors[number].is_constant or number in made for number in given)
        if constant and given and operator.outputs and is_foldable(operator, tensors):
            candidates.add(operator.index)
            made.update(operator.outputs)
    feeds_others: set[int] = set()
    for operator in reversed(operators):
        readers = {reader for number in operator.outputs for reader in consumers.get(number, ())}
        if operator.index in candidates and any(
            reader not in candidates or reader in feeds_others for reader in readers
        ):
            feeds_others.add(operator.index)
    return frozenset(feeds_others)


def touched_state(model: Model, operator: Operator, calling: tuple[int, ...] = ()) -> frozenset[str]:
    """Names of the state an operator touches, itself or in the subgraphs it calls."""
    names: set[str] = set()
    if operator.op_type in ("VAR_HANDLE", "HASHTABLE"):
        names.add(f"{operator.op_type} '{operator.resource}'")
    for called in operator.subgraphs:
        if called in calling:
            continue
        subgraph = model.subgraphs[called]
        if any(tensor.is_variable for tensor in subgraph.tensors):
            names.add(f"variables of subgraph {called}")
        for inner in subgraph.operators:
            names |= touched_state(model, inner, (*calling, called))
    return frozenset(names)


def _state_groups(
    model: Model,
    operators: Sequence[Operator],
    tensors: Sequence[Tensor],
    consumers: Mapping[int, tuple[int, ...]],
) -> Iterator[tuple[str, set[int]]]:
    touching: dict[str, set[int]] = {}
    for operator in operators:
        for name in sorted(touched_state(model, operator)):
            touching.setdefault(name, set()).add(operator.index)
    for tensor in tensors:
        if tensor.is_variable:
            touching[f"variable {named(tensor)}"] = set(consumers.get(tensor.index, ()))
    for name, nodes in touching.items():
        if len(nodes) > 1:
            yield f"state: {name}", nodes


def _uncrossable(
    operators: Sequence[Operator], tensors: Sequence[Tensor], facts: SizeFacts
) -> Iterator[tuple[int, str]]:
    """Tensors that must be read where they are made, with the reason."""
    for operator in operators:
        for number in operator.outputs:
            if number < 0:
                continue
            tensor = tensors[number]
            if tensor.dtype not in CROSSING_TYPES:
                yield number, _type_reason(tensor, operator)
            elif number in facts.dynamic:
                yield number, f"dynamic shape: {facts.dynamic[number]}"
            elif (actual := _actual_type(operator)) and actual != tensor.dtype:
                yield number, f"type of {named(tensor)}: declared {tensor.dtype}, made as {actual}"
    made = {number for operator in operators for number in operator.outputs}
    for tensor in tensors:
        if tensor.dtype not in CROSSING_TYPES and tensor.index not in made and not tensor.is_constant:
            yield tensor.index, f"type {tensor.dtype} of {named(tensor)} cannot be handed over"


def _type_reason(tensor: Tensor, operator: Operator) -> str:
    if operator.op_type in STATE_OPS:
        return (
            f"state: {operator.op_type} '{operator.resource}'"
            if operator.resource
            else f"state: {named(tensor)}"
        )
    return f"type {tensor.dtype} of {named(tensor)} cannot be handed over"


def _actual_type(operator: Operator) -> str:
    """The type the kernel makes, where an option says it (these kernels know two), else empty."""
    if operator.op_type not in _DECLARED_TYPE_OPTION:
        return ""
    made = TENSOR_TYPE_NAMES.get(int(operator.options.get(_DECLARED_TYPE_OPTION[operator.op_type], -1)), "")
    return made if made in ("int32", "int64") else ""
