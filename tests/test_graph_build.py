"""From a file to a graph: order, wiring, names, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from authored import authored_model

from edgeplace.errors import ModelError, UnknownNameError
from edgeplace.graph.build import build_graph
from edgeplace.testing.model_builder import Builder, GraphBuilder, fb
from edgeplace.tflite.reader import Model


def model_of(builder: Builder) -> Model:
    return Model.from_bytes(builder.finish(), "built.tflite")


def test_file_order_is_kept_and_wiring_is_complete() -> None:
    graph = build_graph(authored_model("branchy"))
    assert graph.order == tuple(range(len(graph.nodes)))
    for node in graph.nodes:
        for tensor in node.outputs:
            assert graph.producer[tensor] == node.id
        for tensor in node.inputs:
            if tensor >= 0:
                assert node.id in graph.consumers[tensor]
    assert graph.input_names == ("image",)
    assert graph.model_name == "branchy.tflite"
    assert len(graph.model_sha256) == 64


def test_a_file_out_of_order_is_put_in_order() -> None:
    graph = build_graph(authored_model("shuffled_order"))
    assert graph.order != tuple(range(len(graph.nodes)))
    assert sorted(graph.order) == list(range(len(graph.nodes)))
    done: set[int] = set()
    for node in graph.order:
        assert all(graph.producer[t] in done for t in graph.nodes[node].inputs if t in graph.producer)
        done.add(node)


def test_a_model_without_operators_is_a_graph() -> None:
    graph = build_graph(authored_model("zero_ops"))
    assert graph.nodes == ()
    assert graph.order == ()
    assert set(graph.outputs) <= set(graph.inputs)


def test_signatures_choose_the_subgraph_and_name_its_ends() -> None:
    model = authored_model("two_signatures")
    for signature in model.signatures:
        graph = build_graph(model, signature=signature.key)
        assert graph.subgraph == signature.subgraph
        assert graph.signature == signature.key
        assert dict(zip(graph.input_names, graph.inputs, strict=True)) == dict(signature.inputs)
        assert dict(zip(graph.output_names, graph.outputs, strict=True)) == dict(signature.outputs)
    assert build_graph(model).subgraph == 0


def test_an_unknown_signature_is_refused_with_the_nearest_one() -> None:
    model = authored_model("two_signatures")
    key = model.signatures[0].key
    with pytest.raises(UnknownNameError, match=f"no signature '{key}x'") as caught:
        build_graph(model, signature=f"{key}x")
    assert key in caught.value.hint
    assert caught.value.where == "two_signatures.tflite"


def test_an_output_given_twice_has_two_names() -> None:
    graph = build_graph(authored_model("same_tensor_twice"))
    assert len(set(graph.outputs)) < len(graph.outputs)
    assert len(set(graph.output_names)) == len(graph.output_names)


def test_given_shapes_replace_those_of_the_file_and_close_them() -> None:
    builder = Builder()
    g = builder.graph()
    x = g.input((1, 4), shape_signature=(-1, 4))
    y = g.make("RELU", [x], (1, 4), shape_signature=(-1, 4))
    g.output(y)
    graph = build_graph(model_of(builder), shapes={x: (5, 4), y: (5, 4)})
    assert graph.tensors[x].shape == graph.tensors[y].shape == (5, 4)
    assert graph.tensors[x].shape_signature == ()
    assert graph.nodes[0].activation_bytes == 2 * 5 * 4 * 4


def test_a_circle_names_its_operators() -> None:
    builder = Builder()
    g = builder.graph()
    x = g.input((1, 4))
    back = g.tensor((1, 4))
    start = g.add(x, back)
    middle = g.unary("RELU", start)
    g.op("TANH", [middle], [back])
    g.output(g.unary("ABS", middle))
    with pytest.raises(ModelError, match=r"circle: .*1 \(RELU\) -> 2 \(TANH\)") as caught:
        build_graph(model_of(builder))
    assert "3 (ABS)" not in caught.value.message
    assert caught.value.message.count("(ADD)") >= 1


def _made_twice(g: GraphBuilder, x: int) -> int:
    y = g.unary("RELU", x)
    g.op("TANH", [x], [y])
    return y


def _input_made(g: GraphBuilder, x: int) -> int:
    g.op("TANH", [g.input((1, 4))], [x])
    return x


def _made_by_nobody(g: GraphBuilder, x: int) -> int:
    return g.add(x, g.tensor((1, 4)))


def _output_from_nowhere(g: GraphBuilder, x: int) -> int:
    return g.tensor((1, 4))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_made_twice, r"operators 0 and 1 both make tensor 1"),
        (_input_made, r"made by operator 0 \(TANH\) and by the caller"),
        (_made_by_nobody, r"operator 0 \(ADD\) needs tensor \d+ 't\d+', which is no input"),
        (_output_from_nowhere, r"output list needs tensor \d+ 't\d+'"),
    ],
)
def test_damaged_wiring_is_refused(damage: Callable[[GraphBuilder, int], int], message: str) -> None:
    builder = Builder()
    g = builder.graph()
    g.output(damage(g, g.input((1, 4))))
    with pytest.raises(ModelError, match=message):
        build_graph(model_of(builder))


def test_optional_inputs_and_variables_need_no_maker() -> None:
    assert any(-1 in node.inputs for node in build_graph(authored_model("optional_input")).nodes)
    graph = build_graph(authored_model("svdf_state"))
    variables = [tensor.index for tensor in graph.tensors if tensor.is_variable]
    assert variables
    assert not set(variables) & set(graph.producer)


def test_weights_from_constant_producers_count_as_weights() -> None:
    graph = build_graph(authored_model("fp16_weights"))
    assert graph.constant_nodes
    for node in graph.nodes:
        if node.op_type == "CONV_2D":
            assert node.weight_bytes > 0
            filters = graph.tensors[node.inputs[1]]
            assert node.weight_bytes >= filters.size_bytes
            moved = graph.tensors[node.inputs[0]].size_bytes + graph.tensors[node.outputs[0]].size_bytes
            assert node.activation_bytes == moved


def test_called_subgraphs_count_in_macs_and_weights() -> None:
    builder = Builder()
    g = builder.graph()
    body = builder.graph("body")
    y = body.dense(body.input((1, 8)), 4)
    body.output(y)
    x = g.input((1, 8))
    result = g.make("CALL", [x], (1, 4), fb.CallOptionsT(subgraph=body.index))
    g.output(result)
    node = build_graph(model_of(builder)).nodes[0]
    assert node.macs == 8 * 4
    assert node.weight_bytes == (8 * 4 + 4) * 4
