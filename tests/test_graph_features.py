"""Multiply-accumulates and bytes, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import contract
from edgeplace.graph.features import nodes_features, operator_macs, unit_features
from edgeplace.testing.models import AUTHORED
from edgeplace.testing.toy import BRANCHES, toy_unit_graph
from edgeplace.tflite.model import Operator, Tensor
from edgeplace.tflite.reader import Model


def macs(
    op_type: str, inputs: list[tuple[int, ...] | None], output: tuple[int, ...], **options: object
) -> int:
    """MACs of an operator with these input shapes (``None`` is an optional input that is not given)."""
    shapes = [shape for shape in inputs if shape is not None]
    tensors = [Tensor(i, f"t{i}", shape, "float32", 0, False) for i, shape in enumerate([*shapes, output])]
    numbers: list[int] = []
    for shape in inputs:
        numbers.append(-1 if shape is None else sum(number >= 0 for number in numbers))
    custom = op_type if op_type == "Convolution2DTransposeBias" else ""
    operator = Operator(
        index=0,
        op_type="CUSTOM" if custom else op_type,
        version=1,
        inputs=tuple(numbers),
        outputs=(len(shapes),),
        custom_code=custom,
        options=options,
    )
    return operator_macs(operator, tensors)


LSTM_WEIGHTS: list[tuple[int, ...] | None] = [(8, 5)] * 4 + [(8, 8)] * 4


@pytest.mark.parametrize(
    ("op_type", "inputs", "output", "options", "expected"),
    [
        ("CONV_2D", [(1, 8, 8, 3), (16, 3, 3, 3), (16,)], (1, 4, 4, 16), {}, 4 * 4 * 16 * 27),
        # Grouped: the filter has in channels / groups.
        ("CONV_2D", [(1, 4, 4, 8), (16, 1, 1, 4), (16,)], (1, 4, 4, 16), {}, 16 * 16 * 4),
        ("DEPTHWISE_CONV_2D", [(1, 8, 8, 6), (1, 3, 3, 6), (6,)], (1, 8, 8, 6), {}, 64 * 6 * 9),
        ("FULLY_CONNECTED", [(1, 640), (128, 640), (128,)], (1, 128), {}, 640 * 128),
        ("FULLY_CONNECTED", [(2, 7, 640), (128, 640), None], (2, 7, 128), {}, 14 * 640 * 128),
        ("TRANSPOSE_CONV", [(4,), (16, 2, 2, 8), (1, 4, 4, 8)], (1, 8, 8, 16), {}, 4 * 4 * 8 * 16 * 4),
        ("Convolution2DTransposeBias", [(1, 4, 4, 8), (16, 2, 2, 8), (16,)], (1, 8, 8, 16), {}, 128 * 64),
        ("CONV_3D", [(1, 4, 4, 4, 3), (2, 3, 3, 3, 5)], (1, 2, 2, 2, 5), {}, 40 * 2 * 9 * 3),
        ("CONV_3D_TRANSPOSE", [(5,), (2, 3, 3, 4, 5), (1, 2, 2, 2, 5)], (1, 4, 4, 4, 4), {}, 40 * 2 * 9 * 4),
        ("BATCH_MATMUL", [(2, 4, 7), (2, 7, 5)], (2, 4, 5), {}, 2 * 4 * 5 * 7),
        ("BATCH_MATMUL", [(2, 7, 4), (2, 7, 5)], (2, 4, 5), {"adj_x": True}, 2 * 4 * 5 * 7),
        (
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            [(2, 10, 5), *LSTM_WEIGHTS, None, None, None],
            (2, 10, 8),
            {},
            20 * 4 * (8 * 5 + 8 * 8),
        ),
        # Without an input gate (coupled with the forget gate).
        ("LSTM", [(3, 5), None, *LSTM_WEIGHTS[1:], *[None] * 12], (3, 8), {}, 3 * (3 * 40 + 4 * 64)),
        # The basic cell: data, previous activation, one matrix, bias, previous state.
        ("LSTM", [(3, 5), (3, 8), (32, 13), (32,), (3, 8)], (3, 8), {}, 3 * 32 * 13),
        ("SVDF", [(2, 10), (16, 10), (16, 4), (16,), (2, 64)], (2, 16), {}, 2 * (16 * 10 + 16 * 4)),
        ("UNIDIRECTIONAL_SEQUENCE_RNN", [(1, 6, 5), (8, 5), (8, 8), (8,), (1, 8)], (1, 6, 8), {}, 6 * 104),
        ("ADD", [(1, 8), (1, 8)], (1, 8), {}, 0),
        ("SOFTMAX", [(1, 8)], (1, 8), {}, 0),
        ("UNKNOWN_TO_US", [(1, 8)], (1, 8), {}, 0),
    ],
)
def test_macs(
    op_type: str,
    inputs: list[tuple[int, ...] | None],
    output: tuple[int, ...],
    options: dict[str, object],
    expected: int,
) -> None:
    assert macs(op_type, inputs, output, **options) == expected


def test_a_unit_sees_what_crosses_its_border() -> None:
    unit_graph = toy_unit_graph(4, BRANCHES)
    sizes = [unit_graph.graph.tensors[node + 1].size_bytes for node in range(4)]
    first, left, right, last = unit_features(unit_graph)
    assert first.output_bytes == sizes[0]
    assert left.input_bytes == right.input_bytes == sizes[0]
    assert last.input_bytes == sizes[1] + sizes[2]
    assert last.output_bytes == sizes[3]
    assert first.input_bytes == unit_graph.graph.tensors[0].size_bytes


def test_a_constant_that_nodes_of_a_unit_share_counts_once() -> None:
    graph = build_graph(Model.from_bytes(AUTHORED["shared_constants"]()))
    unit_graph = contract(graph, "op")
    filters, bias = 8 * 3 * 3 * 8 * 4, 8 * 4  # three convolutions, two filter tensors, one buffer
    assert [part.weight_bytes for part in unit_features(unit_graph)] == [filters + bias] * 3
    assert nodes_features(unit_graph, graph.order).weight_bytes == filters + bias


def test_a_unit_carries_the_constants_of_its_copied_producers() -> None:
    graph = build_graph(Model.from_bytes(AUTHORED["fp16_weights"]()))
    unit_graph = contract(graph, "op")
    for unit, features in zip(unit_graph.units, unit_features(unit_graph), strict=True):
        node = graph.nodes[unit.nodes[0]]
        if node.op_type == "CONV_2D":
            # Half of the float32 that the convolution reads: the file holds float16.
            assert 0 < features.weight_bytes < node.weight_bytes
