"""From a model's file to the graph of one of its entries."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgeplace.errors import ModelError, UnknownNameError
from edgeplace.graph.bonds import constant_nodes, find_bonds
from edgeplace.graph.features import called_weight_bytes, operator_macs
from edgeplace.graph.graph import Graph, Node
from edgeplace.graph.sizes import named, size_facts
from edgeplace.registry import nearest_name_hint
from edgeplace.tflite.model import Operator, Signature, Subgraph, Tensor

if TYPE_CHECKING:
    from edgeplace.tflite.reader import Model


def build_graph(
    model: Model, *, signature: str = "", shapes: Mapping[int, tuple[int, ...]] | None = None
) -> Graph:
    """The graph of one entry of a model: every operator is a node (patent claim 1, the compute nodes).

    Args:
        signature: Which signature's subgraph to take; empty takes subgraph 0, as the runtimes do.
        shapes: Tensor number -> shape, where it is not the one in the file (after the inputs were resized), or where
            the file leaves it open and allocating the model has shown it. Only what is given is believed: give all
            tensors, not the inputs alone.

    Raises:
        UnknownNameError: The model has no such signature.
        ModelError: Operators read each other in a circle, a tensor is made twice, or a tensor that is read is
            neither made nor given nor constant.
    """
    entry = _find_signature(model, signature)
    subgraph = model.subgraphs[entry.subgraph if entry else 0]
    tensors = _tensors_in_force(subgraph, shapes or {})
    producer = _producers(model, subgraph)
    consumers = _consumers(subgraph)
    _check_all_made(model, subgraph, producer)
    order = _topological_order(model, subgraph, producer)
    ordered = [subgraph.operators[index] for index in order]
    folded = constant_nodes(ordered, tensors, consumers)
    computed_weights = {number for node in folded for number in subgraph.operators[node].outputs}
    facts = size_facts(model, ordered, tensors)
    return Graph(
        model_name=model.name,
        model_sha256=model.sha256,
        subgraph=subgraph.index,
        signature=signature,
        nodes=tuple(_node(model, operator, tensors, computed_weights) for operator in subgraph.operators),
        tensors=tensors,
        inputs=subgraph.inputs,
        outputs=subgraph.outputs,
        input_names=_names(subgraph.inputs, tensors, entry.inputs if entry else {}),
        output_names=_names(subgraph.outputs, tensors, entry.outputs if entry else {}),
        order=order,
        producer=producer,
        consumers=consumers,
        bonds=find_bonds(model, ordered, tensors, consumers, producer, facts),
        constant_nodes=folded,
        doubtful_sizes=facts.doubtful,
    )


def _find_signature(model: Model, name: str) -> Signature | None:
    if not name:
        return None
    known = {signature.key: signature for signature in model.signatures}
    if name not in known:
        raise UnknownNameError(
            f"the model has no signature '{name}'", hint=nearest_name_hint(name, known), where=model.name
        )
    return known[name]


def _tensors_in_force(subgraph: Subgraph, shapes: Mapping[int, tuple[int, ...]]) -> tuple[Tensor, ...]:
    """The file's tensors with the given shapes; a given shape is final, so the signature that left it open goes."""
    return tuple(
        replace(tensor, shape=tuple(shapes[tensor.index]), shape_signature=())
        if tensor.index in shapes
        else tensor
        for tensor in subgraph.tensors
    )


def _producers(model: Model, subgraph: Subgraph) -> dict[int, int]:
    """Tensor -> operator that makes it. (That no two operators make one, the reader has checked.)"""
    producer: dict[int, int] = {}
    given = set(subgraph.inputs)
    for operator in subgraph.operators:
        for number in operator.outputs:
            if number < 0:
                continue
            tensor = subgraph.tensors[number]
            other = ""
            if number in given:
                other = "the caller"
            elif tensor.is_constant:
                other = "the file (it has constant data)"
            if other:
                raise ModelError(
                    f"{named(tensor)} is made by operator {operator.index} ({operator.op_type}) and by {other}",
                    hint="the file is damaged or was edited wrongly; convert the model again",
                    where=model.name,
                )
            producer[number] = operator.index
    return producer


def _consumers(subgraph: Subgraph) -> dict[int, tuple[int, ...]]:
    consumers: dict[int, dict[int, None]] = {}
    for operator in subgraph.operators:
        for number in operator.inputs:
            if number >= 0:
                consumers.setdefault(number, {})[operator.index] = None
    return {number: tuple(readers) for number, readers in consumers.items()}


def _check_all_made(model: Model, subgraph: Subgraph, producer: Mapping[int, int]) -> None:
    """Everything that is read has to come from somewhere."""
    readers: list[tuple[str, Iterable[int]]] = [
        (f"operator {operator.index} ({operator.op_type})", operator.inputs)
        for operator in subgraph.operators
    ]
    given = set(subgraph.inputs)
    for reader, numbers in [*readers, ("the graph's output list", subgraph.outputs)]:
        for number in numbers:
            if number < 0 or number in producer or number in given:
                continue
            tensor = subgraph.tensors[number]
            if tensor.is_constant or tensor.is_variable:
                continue
            raise ModelError(
                f"{reader} needs {named(tensor)}, which is no input, no constant, and made by no operator",
                hint="the file is damaged or was edited wrongly; convert the model again",
                where=model.name,
            )


def _topological_order(model: Model, subgraph: Subgraph, producer: Mapping[int, int]) -> tuple[int, ...]:
    """Operators so that each comes after what it reads: of those that may come next, the first in the file.

    A file in topological order keeps its order, and with it the order in which operators touch state.
    """
    missing: list[int] = []
    readers: dict[int, list[int]] = {}
    for operator in subgraph.operators:
        makers = {producer[number] for number in operator.inputs if number in producer}
        missing.append(len(makers))
        for maker in makers:
            readers.setdefault(maker, []).append(operator.index)
    ready = [index for index, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers.get(index, ()):
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(subgraph.operators):
        circle = _a_cycle(subgraph, producer, {index for index, count in enumerate(missing) if count})
        text = " -> ".join(f"{index} ({subgraph.operators[index].op_type})" for index in circle)
        raise ModelError(
            f"operators read each other in a circle: {text}",
            hint="the file is damaged or was edited wrongly; convert the model again",
            where=model.name,
        )
    return tuple(order)


def _a_cycle(subgraph: Subgraph, producer: Mapping[int, int], stuck: set[int]) -> list[int]:
    """One circle among the operators that never became ready, in data order, ending where it began.

    Every stuck operator reads something of another stuck one, so walking backwards must come by twice.
    """
    path = [min(stuck)]
    while path[-1] not in path[:-1]:
        inputs = subgraph.operators[path[-1]].inputs
        path.append(next(producer[number] for number in inputs if producer.get(number) in stuck))
    return path[path.index(path[-1]) :][::-1]


def _node(model: Model, operator: Operator, tensors: Sequence[Tensor], computed_weights: set[int]) -> Node:
    """The node of an operator; what constant producers make for it counts as weights."""
    read = {number for number in operator.inputs if number >= 0}
    weights = {number for number in read if tensors[number].is_constant or number in computed_weights}
    moved = [*(read - weights), *(number for number in operator.outputs if number >= 0)]
    first = operator.outputs[0] if operator.outputs and operator.outputs[0] >= 0 else None
    return Node(
        id=operator.index,
        op_type=operator.op_type,
        custom_code=operator.custom_code,
        name=tensors[first].name if first is not None else "",
        inputs=operator.inputs,
        outputs=operator.outputs,
        macs=operator_macs(operator, tensors, model),
        weight_bytes=sum(tensors[number].size_bytes for number in weights)
        + called_weight_bytes(operator, model),
        activation_bytes=sum(tensors[number].size_bytes for number in moved),
    )


def _names(numbers: Sequence[int], tensors: Sequence[Tensor], named_by: Mapping[str, int]) -> tuple[str, ...]:
    """A name for each tensor: the signature's, else its own; never empty and never the same for two of them."""
    signature_names: dict[int, list[str]] = {}
    for name, number in named_by.items():
        signature_names.setdefault(number, []).append(name)
    names: list[str] = []
    for number in numbers:
        given = signature_names.get(number)
        name = given.pop(0) if given else tensors[number].name or f"tensor_{number}"
        copies = 2
        unique = name
        while unique in names:
            unique = f"{name}#{copies}"
            copies += 1
        names.append(unique)
    return tuple(names)
