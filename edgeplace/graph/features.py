"""What a node costs, as far as the file tells: multiply-accumulates and bytes.

These are features for a model of time and sizes for people, never a time by themselves: the same operator runs up to
15 times faster or slower by runtime and type, which only a measurement shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeplace.graph.graph import Graph, UnitGraph
from edgeplace.tflite.model import Operator, Tensor

if TYPE_CHECKING:
    from edgeplace.tflite.reader import Model

_MAX_CALL_DEPTH = 16
"""Subgraphs may call each other in a circle in a broken file; deeper than this nothing is counted."""


def operator_macs(
    operator: Operator, tensors: Sequence[Tensor], model: Model | None = None, *, depth: int = 0
) -> int:
    """Multiply-accumulate operations of one run of an operator; 0 where it has none or nobody can tell.

    Control flow counts each subgraph it calls once (how often a WHILE turns is not in the file).

    Args:
        tensors: The tensors of its subgraph, with the shapes in force.
        model: Where called subgraphs are found; ``None`` counts none of them.
    """
    count = _MACS.get(operator.op_type)
    if operator.op_type == "CUSTOM":
        count = _CUSTOM_MACS.get(operator.custom_code)
    macs = count(_Shapes(operator, tensors)) if count is not None else 0
    if model is not None and depth < _MAX_CALL_DEPTH:
        for called in operator.subgraphs:
            subgraph = model.subgraphs[called]
            macs += sum(
                operator_macs(inner, subgraph.tensors, model, depth=depth + 1) for inner in subgraph.operators
            )
    return macs


def called_weight_bytes(operator: Operator, model: Model, *, depth: int = 0) -> int:
    """Bytes of the constants in the subgraphs an operator calls."""
    if depth >= _MAX_CALL_DEPTH:
        return 0
    size_bytes = 0
    for called in operator.subgraphs:
        subgraph = model.subgraphs[called]
        size_bytes += sum(tensor.size_bytes for tensor in subgraph.tensors if tensor.is_constant)
        size_bytes += sum(called_weight_bytes(inner, model, depth=depth + 1) for inner in subgraph.operators)
    return size_bytes


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Shapes of an operator's tensors by position; a position that is not there is an empty tensor."""

    operator: Operator
    tensors: Sequence[Tensor]

    def given(self, position: int) -> tuple[int, ...]:
        """Shape of input ``position``."""
        inputs = self.operator.inputs
        if position >= len(inputs) or inputs[position] < 0:
            return (0,)
        return self.tensors[inputs[position]].shape

    def made(self) -> int:
        """Elements of the first output."""
        outputs = self.operator.outputs
        return self.tensors[outputs[0]].elements if outputs else 0


def _conv(shapes: _Shapes) -> int:
    """Filter is [out channels, height, width, in channels / groups]."""
    return shapes.made() * math.prod(shapes.given(1)[1:])


def _depthwise(shapes: _Shapes) -> int:
    """Filter is [1, height, width, out channels]."""
    return shapes.made() * math.prod(shapes.given(1)[1:3])


def _fully_connected(shapes: _Shapes) -> int:
    """Weights are [out features, in features]; everything before the last axis of the input is batch."""
    weights = shapes.given(1)
    return math.prod(shapes.given(0)) // max(weights[-1], 1) * math.prod(weights) if weights else 0


def _transpose_conv(data: int) -> Callable[[_Shapes], int]:
    """Filter is [out channels, height, width, in channels] at position 1; ``data`` says where the data is."""
    return lambda shapes: math.prod(shapes.given(data)) * math.prod(shapes.given(1)[:3])


def _conv_3d(shapes: _Shapes) -> int:
    """Filter is [depth, height, width, in channels, out channels]."""
    return shapes.made() * math.prod(shapes.given(1)[:4])


def _conv_3d_transpose(shapes: _Shapes) -> int:
    """Inputs are output shape, filter [depth, height, width, out channels, in channels], data."""
    return math.prod(shapes.given(2)) * math.prod(shapes.given(1)[:4])


def _batch_matmul(shapes: _Shapes) -> int:
    left = shapes.given(0)
    if not left:
        return 0
    adjoint = bool(shapes.operator.options.get("adj_x", False)) and len(left) > 1
    return shapes.made() * left[-2 if adjoint else -1]


def _recurrent(*weights: int) -> Callable[[_Shapes], int]:
    """Each step of each batch row multiplies with every weight matrix at those input positions."""

    def count(shapes: _Shapes) -> int:
        data = shapes.given(0)
        # The basic LSTM cell has five inputs, and one matrix for all gates at position 2.
        basic = shapes.operator.op_type == "LSTM" and len(shapes.operator.inputs) == 5
        steps = math.prod(data[:-1])
        return steps * sum(math.prod(shapes.given(at)) for at in ((2,) if basic else weights))

    return count


_LSTM_WEIGHTS = (*range(1, 9), 16)
_BACKWARD_LSTM_WEIGHTS = (*range(18, 26), 33)
_MACS: dict[str, Callable[[_Shapes], int]] = {
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
    "TRANSPOSE_CONV": _transpose_conv(2),
    "CONV_3D": _conv_3d,
    "CONV_3D_TRANSPOSE": _conv_3d_transpose,
    "BATCH_MATMUL": _batch_matmul,
    "LSTM": _recurrent(*_LSTM_WEIGHTS),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _recurrent(*_LSTM_WEIGHTS),
    "BIDIRECTIONAL_SEQUENCE_LSTM": _recurrent(*_LSTM_WEIGHTS, *_BACKWARD_LSTM_WEIGHTS),
    "RNN": _recurrent(1, 2),
    "UNIDIRECTIONAL_SEQUENCE_RNN": _recurrent(1, 2),
    "BIDIRECTIONAL_SEQUENCE_RNN": _recurrent(1, 2, 5, 6),
    "SVDF": _recurrent(1, 2),
}
_CUSTOM_MACS: dict[str, Callable[[_Shapes], int]] = {
    # MediaPipe's transposed convolution with bias: data, filter, bias.
    "Convolution2DTransposeBias": _transpose_conv(0),
}


@dataclass(frozen=True, slots=True)
class UnitFeatures:
    """What a unit costs and what crosses its border.

    Attributes:
        macs: Multiply-accumulate operations.
        weight_bytes: Bytes of the constants it carries, each counted once, those of its copies of constant
            producers included.
        activation_bytes: Bytes its nodes read and write, constants apart.
        input_bytes: Bytes of the tensors it takes from graph inputs and other units.
        output_bytes: Bytes of the tensors that other units or the caller take from it.
    """

    macs: int
    weight_bytes: int
    activation_bytes: int
    input_bytes: int
    output_bytes: int


def unit_features(unit_graph: UnitGraph) -> tuple[UnitFeatures, ...]:
    """The features of every unit, in unit order."""
    return tuple(nodes_features(unit_graph, unit.nodes) for unit in unit_graph.units)


def nodes_features(unit_graph: UnitGraph, nodes: Sequence[int]) -> UnitFeatures:
    """The features of any group of nodes, seen as one unit."""
    graph = unit_graph.graph
    carried = set(nodes) | replicas_for(graph, nodes, unit_graph.replicated)
    read = {tensor for node in carried for tensor in graph.nodes[node].inputs if tensor >= 0}
    made = {tensor for node in carried for tensor in graph.nodes[node].outputs}
    wanted = set(graph.outputs)
    leaving = {
        tensor
        for node in nodes
        for tensor in graph.nodes[node].outputs
        if tensor in wanted or any(reader not in carried for reader in graph.consumers.get(tensor, ()))
    }
    # One buffer behind several tensors is one constant.
    weights = {
        graph.tensors[tensor].buffer: graph.tensors[tensor].size_bytes
        for tensor in read
        if graph.tensors[tensor].is_constant
    }
    arriving = {tensor for tensor in read - made if tensor in graph.producer or is_fed(graph, tensor)}
    return UnitFeatures(
        macs=sum(graph.nodes[node].macs for node in nodes),
        weight_bytes=sum(weights.values()),
        activation_bytes=sum(graph.nodes[node].activation_bytes for node in nodes),
        input_bytes=sum(graph.tensors[tensor].size_bytes for tensor in arriving),
        output_bytes=sum(graph.tensors[tensor].size_bytes for tensor in leaving),
    )


def is_fed(graph: Graph, tensor: int) -> bool:
    """Whether the caller gives this tensor."""
    return tensor in graph.inputs and tensor not in graph.producer


def replicas_for(graph: Graph, nodes: Sequence[int], replicated: frozenset[int]) -> set[int]:
    """The constant producers that these nodes need a copy of, and those that feed them in turn."""
    needed: set[int] = set()
    waiting = list(nodes)
    while waiting:
        for tensor in graph.nodes[waiting.pop()].inputs:
            maker = graph.producer.get(tensor)
            if maker is not None and maker in replicated and maker not in needed:
                needed.add(maker)
                waiting.append(maker)
    return needed
