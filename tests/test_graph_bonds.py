"""What must stay together and what goes along: one test per rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from authored import authored_graph

from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import contract
from edgeplace.graph.graph import Graph
from edgeplace.testing.model_builder import Builder, GraphBuilder, fb
from edgeplace.tflite.reader import Model


def built(write: Callable[[GraphBuilder], Any]) -> Graph:
    builder = Builder()
    write(builder.graph())
    return build_graph(Model.from_bytes(builder.finish()))


def ints(g: GraphBuilder, *values: int) -> int:
    return g.constant(np.array(values, np.int32))


def custom(g: GraphBuilder, x: int, shape: Sequence[int], dtype: str = "float32") -> int:
    result = g.tensor(shape, dtype)
    g.op("CUSTOM", [x], [result], custom_code="Mystery")
    return result


def together(graph: Graph, *op_types: str) -> bool:
    """Whether all nodes of these types are in one unit of the finest contraction."""
    units = contract(graph, "op").units
    found = {unit.id for unit in units for node in unit.nodes if graph.nodes[node].op_type in op_types}
    return len(found) == 1


def reasons(graph: Graph) -> str:
    return "\n".join(bond.reason for bond in graph.bonds)


# --- state ---


def test_resource_variables_stay_with_everything_that_touches_them() -> None:
    graph = authored_graph("resource_variables")
    assert together(graph, "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
    assert "state: VAR_HANDLE '" in reasons(graph)
    assert len(contract(graph, "op").units) > 1  # the stateless head is free


def test_variables_that_nobody_shares_are_free_of_each_other() -> None:
    def write(g: GraphBuilder) -> None:
        for name in ("one", "two"):
            handle = g.make(
                "VAR_HANDLE", [], (), fb.VarHandleOptionsT(container="", sharedName=name), "resource"
            )
            g.output(g.make("READ_VARIABLE", [handle], (1, 4), fb.ReadVariableOptionsT()))

    graph = built(write)
    assert len(contract(graph, "op").units) == 2


def test_two_handles_of_one_name_are_one_state() -> None:
    def write(g: GraphBuilder) -> None:
        for _ in range(2):
            handle = g.make(
                "VAR_HANDLE", [], (), fb.VarHandleOptionsT(container="", sharedName="s"), "resource"
            )
            g.output(g.make("READ_VARIABLE", [handle], (1, 4), fb.ReadVariableOptionsT()))

    assert len(contract(built(write), "op").units) == 1


def test_what_lies_between_reading_and_writing_state_comes_along() -> None:
    def write(g: GraphBuilder) -> None:
        x = g.unary("RELU", g.input((1, 4)))
        handle = g.make("VAR_HANDLE", [], (), fb.VarHandleOptionsT(container="", sharedName="s"), "resource")
        total = g.add(x, g.make("READ_VARIABLE", [handle], (1, 4), fb.ReadVariableOptionsT()))
        g.op("ASSIGN_VARIABLE", [handle, g.unary("TANH", total)], [], fb.AssignVariableOptionsT())
        g.output(g.unary("ABS", total))

    graph = built(write)
    units = contract(graph, "op").units
    assert [[graph.nodes[node].op_type for node in unit.nodes] for unit in units] == [
        ["RELU"],
        ["VAR_HANDLE", "READ_VARIABLE", "ADD", "TANH", "ASSIGN_VARIABLE"],
        ["ABS"],
    ]
    assert any("on a path between nodes that stay together: 3-4" in text for text in units[1].bonds)


def test_a_subgraph_that_touches_state_ties_its_caller() -> None:
    builder = Builder()
    g = builder.graph()
    body = builder.graph("body")
    inner = body.make("VAR_HANDLE", [], (), fb.VarHandleOptionsT(container="", sharedName="s"), "resource")
    body.output(body.make("READ_VARIABLE", [inner], (1, 4), fb.ReadVariableOptionsT()))
    x = g.input((1, 4))
    handle = g.make("VAR_HANDLE", [], (), fb.VarHandleOptionsT(container="", sharedName="s"), "resource")
    g.op("ASSIGN_VARIABLE", [handle, x], [], fb.AssignVariableOptionsT())
    called = g.make("CALL", [], (1, 4), fb.CallOptionsT(subgraph=body.index))
    g.output(g.unary("RELU", called))
    graph = build_graph(Model.from_bytes(builder.finish()))
    assert together(graph, "VAR_HANDLE", "ASSIGN_VARIABLE", "CALL")
    assert not together(graph, "CALL", "RELU")


def test_a_variable_tensor_ties_all_that_read_it() -> None:
    def write(g: GraphBuilder) -> None:
        state = g.tensor((2, 64), variable=True, name="memory")
        x = g.input((2, 10))
        for _ in range(2):
            inputs = [x, g.weights(16, 10), g.weights(16, 4), -1, state]
            g.output(g.make("SVDF", inputs, (2, 16), fb.SVDFOptionsT(rank=1)))

    graph = built(write)
    assert len(contract(graph, "op").units) == 1
    assert "state: variable tensor 0 'memory'" in reasons(graph)


def test_one_reader_of_a_variable_is_free() -> None:
    for name in ("svdf_state", "lstm_state"):
        graph = authored_graph(name)
        assert len(contract(graph, "op").units) == len(graph.nodes) - len(graph.constant_nodes)


def test_hash_tables_stay_with_their_lookups() -> None:
    def write(g: GraphBuilder) -> None:
        options = fb.HashtableOptionsT(tableId=7, keyDtype=4, valueDtype=4)
        table = g.make("HASHTABLE", [], (1,), options, "resource")
        keys, default = g.input((2,), "int64"), g.constant(np.array([0], np.int64))
        found = g.make("HASHTABLE_FIND", [table, keys, default], (2,), fb.HashtableFindOptionsT(), "int64")
        g.output(g.make("CAST", [found], (2,), fb.CastOptionsT()))

    graph = built(write)
    assert together(graph, "HASHTABLE", "HASHTABLE_FIND")
    assert not together(graph, "HASHTABLE_FIND", "CAST")


# --- types that cannot cross ---


@pytest.mark.parametrize("dtype", ["variant", "int4", "bfloat16"])
def test_types_without_an_array_form_stay_inside(dtype: str) -> None:
    def write(g: GraphBuilder) -> None:
        g.output(custom(g, custom(g, g.input((1, 4)), (1, 4), dtype), (1, 4)))

    graph = built(write)
    assert len(contract(graph, "op").units) == 1
    assert f"type {dtype} of tensor" in reasons(graph)


def test_strings_may_cross() -> None:
    graph = authored_graph("strings")
    assert any(tensor.dtype == "string" for tensor in graph.tensors)
    assert graph.bonds == ()


def test_a_type_the_kernel_changes_stays_inside() -> None:
    def write(g: GraphBuilder, declared: str) -> None:
        options = fb.ArgMaxOptionsT(outputType=fb.TensorType.INT32)
        best = g.make("ARG_MAX", [g.input((2, 4)), ints(g, 1)], (2,), options, declared)
        g.output(g.make("CAST", [best], (2,), fb.CastOptionsT()))

    wrong = built(lambda g: write(g, "int64"))
    assert together(wrong, "ARG_MAX", "CAST")
    assert "declared int64, made as int32" in reasons(wrong)
    assert built(lambda g: write(g, "int32")).bonds == ()


# --- sizes ---


def test_data_dependent_sizes_stay_with_their_readers() -> None:
    graph = authored_graph("dynamic_where")
    units = contract(graph, "op").units
    where = next(node.id for node in graph.nodes if node.op_type == "WHERE")
    unit = next(unit for unit in units if where in unit.nodes)
    assert set(graph.consumers.get(graph.nodes[where].outputs[0], ())) <= set(unit.nodes)
    assert "dynamic shape: WHERE" in reasons(graph)


def test_a_computed_target_shape_is_dynamic_all_the_way_down() -> None:
    graph = authored_graph("dynamic_reshape")
    assert together(graph, "RESHAPE", "ABS")
    assert not together(graph, "TANH", "RESHAPE")
    assert "RESHAPE 1 takes its size from computed tensor 1 'target'" in reasons(graph)


def test_a_shape_computed_from_a_known_shape_is_not_dynamic() -> None:
    def write(g: GraphBuilder) -> None:
        x = g.unary("RELU", g.input((2, 6)))
        shape = g.make("SHAPE", [x], (2,), fb.ShapeOptionsT(outType=fb.TensorType.INT32), "int32")
        rows = g.make(
            "STRIDED_SLICE",
            [shape, ints(g, 0), ints(g, 1), ints(g, 1)],
            (),
            fb.StridedSliceOptionsT(shrinkAxisMask=1),
            "int32",
        )
        extents = [rows, g.constant(np.array(3, np.int32)), g.constant(np.array(2, np.int32))]
        target = g.make("PACK", extents, (3,), fb.PackOptionsT(valuesCount=3), "int32")
        y = g.make("RESHAPE", [x, target], (2, 3, 2), fb.ReshapeOptionsT())
        g.output(g.unary("TANH", y))

    assert built(write).bonds == ()


def test_shapes_stop_the_spread() -> None:
    """SHAPE of a tensor of unknown size has a known size; its value is not known."""

    def write(g: GraphBuilder) -> None:
        x, target = g.input((2, 6)), g.input((2,), "int32")
        y = g.make("RESHAPE", [x, target], (1, 1), fb.ReshapeOptionsT())
        shape = g.make("SHAPE", [y], (2,), fb.ShapeOptionsT(outType=fb.TensorType.INT32), "int32")
        g.output(g.make("CAST", [shape], (2,), fb.CastOptionsT()), g.reshape(y, (12,)))

    graph = built(write)
    assert together(graph, "RESHAPE", "SHAPE")
    assert not together(graph, "SHAPE", "CAST")


def _open_batch(g: GraphBuilder, x: int) -> int:
    """A convolution and a dense layer over an open batch, as every Keras model has them."""
    y = g.conv(x, 4)
    g.graph.tensors[y].shapeSignature = [-1, 4, 4, 4]
    flat = g.make("RESHAPE", [y, ints(g, -1, 64)], (1, 64), fb.ReshapeOptionsT(), shape_signature=(-1, 64))
    wide = g.dense(flat, 3)
    g.graph.tensors[wide].shapeSignature = [-1, 3]
    return g.make("SOFTMAX", [wide], (1, 3), fb.SoftmaxOptionsT(beta=1.0), shape_signature=(-1, 3))


def _open_reshape(g: GraphBuilder, x: int) -> int:
    """The filler says (1, 4), the kernel makes (12, 4)."""
    y = g.make("RESHAPE", [x, ints(g, -1, 4)], (1, 4), fb.ReshapeOptionsT(), shape_signature=(-1, 4))
    return g.make("ABS", [y], (1, 4), fb.AbsOptionsT(), shape_signature=(-1, 4))


def _open_height(g: GraphBuilder, x: int) -> int:
    """Padding makes the open height 6; the filler is the 4 from before."""
    pads = g.constant(np.array([[0, 0], [1, 1], [0, 0], [0, 0]], np.int32))
    y = g.make("PAD", [x, pads], (1, 4, 4, 3), fb.PadOptionsT(), shape_signature=(-1, -1, 4, 3))
    return g.make("ABS", [y], (1, 4, 4, 3), fb.AbsOptionsT(), shape_signature=(-1, -1, 4, 3))


def _open_height_right(g: GraphBuilder, x: int) -> int:
    """The same with the right filler."""
    pads = g.constant(np.array([[0, 0], [1, 1], [0, 0], [0, 0]], np.int32))
    y = g.make("PAD", [x, pads], (1, 6, 4, 3), fb.PadOptionsT(), shape_signature=(-1, -1, 4, 3))
    return g.make("ABS", [y], (1, 6, 4, 3), fb.AbsOptionsT(), shape_signature=(-1, -1, 4, 3))


def _open_concatenation(g: GraphBuilder, x: int) -> int:
    """Two open batches one after the other are two, not one."""
    options = fb.ConcatenationOptionsT(axis=0)
    y = g.make("CONCATENATION", [x, x], (1, 4, 4, 3), options, shape_signature=(-1, 4, 4, 3))
    return g.make("ABS", [y], (1, 4, 4, 3), fb.AbsOptionsT(), shape_signature=(-1, 4, 4, 3))


def _open_transpose(g: GraphBuilder, x: int) -> int:
    """The batch moved to the back is still the batch."""
    axes = ints(g, 1, 2, 3, 0)
    y = g.make("TRANSPOSE", [x, axes], (4, 4, 3, 1), fb.TransposeOptionsT(), shape_signature=(4, 4, 3, -1))
    return g.make("ABS", [y], (4, 4, 3, 1), fb.AbsOptionsT(), shape_signature=(4, 4, 3, -1))


@pytest.mark.parametrize(
    ("write", "believed"),
    [
        (_open_batch, True),
        (_open_reshape, False),
        (_open_height, False),
        (_open_height_right, True),
        (_open_concatenation, False),
        (_open_transpose, True),
    ],
)
def test_fillers_of_open_sizes_are_believed_where_they_follow(
    write: Callable[[GraphBuilder, int], int], believed: bool
) -> None:
    graph = built(lambda g: g.output(write(g, g.input((1, 4, 4, 3), shape_signature=(-1, 4, 4, 3)))))
    assert (graph.bonds == ()) is believed
    assert believed or "leaves the size of tensor" in reasons(graph)


def test_shapes_found_by_allocating_settle_open_sizes() -> None:
    builder = Builder()
    g = builder.graph()
    x = g.input((1, 4, 4, 3), shape_signature=(-1, 4, 4, 3))
    g.output(_open_reshape(g, x))
    model = Model.from_bytes(builder.finish())
    shapes = {x: (1, 4, 4, 3)} | {
        tensor.index: (12, 4) for tensor in model.subgraphs[0].tensors if tensor.shape == (1, 4)
    }
    as_it_stands, allocated = build_graph(model), build_graph(model, shapes=shapes)
    assert as_it_stands.bonds
    assert len(as_it_stands.doubtful_sizes) == 1  # the other open tensor only follows from it
    assert allocated.bonds == ()
    assert allocated.doubtful_sizes == frozenset()


def test_a_shape_that_the_file_left_out_is_not_believed() -> None:
    def write(g: GraphBuilder) -> None:
        y = g.make("QUANTIZE", [g.input((1, 4))], (), dtype="int8")
        g.output(g.make("DEQUANTIZE", [y], (1, 4)))

    graph = built(write)
    assert together(graph, "QUANTIZE", "DEQUANTIZE")
    assert "the shape [], which cannot be" in reasons(graph)


def test_branches_of_different_shapes_make_a_dynamic_output() -> None:
    def write(builder: Builder, then_width: int) -> None:
        g = builder.graph()
        branches = []
        for width in (then_width, 4):
            branch = builder.graph()
            branch.output(branch.dense(branch.input((1, 4)), width))
            branches.append(branch.index)
        options = fb.IfOptionsT(thenSubgraphIndex=branches[0], elseSubgraphIndex=branches[1])
        y = g.make("IF", [g.input((), "bool"), g.input((1, 4))], (1, 4), options)
        g.output(g.unary("RELU", y))

    graphs: Sequence[Graph] = []
    for width in (4, 6):
        builder = Builder()
        write(builder, width)
        graphs = [*graphs, build_graph(Model.from_bytes(builder.finish()))]
    same, different = graphs
    assert same.bonds == ()
    assert together(different, "IF", "RELU")
    assert "in several shapes" in reasons(different)


def test_control_flow_with_fixed_shapes_is_free() -> None:
    for name in ("while_loop", "if_branch", "nested_control", "composite"):
        assert authored_graph(name).bonds == (), name


# --- constant producers ---


def test_constant_producers_go_with_their_readers() -> None:
    for name, op_type in (("fp16_weights", "DEQUANTIZE"), ("sparse_weights", "DENSIFY")):
        graph = authored_graph(name)
        unit_graph = contract(graph, "op")
        assert {graph.nodes[node].op_type for node in unit_graph.replicated} >= {op_type}
        assert not unit_graph.replicated & {node for unit in unit_graph.units for node in unit.nodes}


def test_chance_and_state_are_no_constants() -> None:
    def write(g: GraphBuilder) -> None:
        x = g.input((1, 4))
        noise = g.make("RANDOM_UNIFORM", [ints(g, 1, 4)], (1, 4), fb.RandomOptionsT())
        unknown = custom(g, g.weights(1, 4), (1, 4))
        g.output(g.add(x, noise), g.add(x, unknown))

    assert built(write).constant_nodes == frozenset()


def test_a_constant_that_only_leads_to_outputs_is_a_node_like_any_other() -> None:
    def write(g: GraphBuilder) -> None:
        shared = g.unary("ABS", g.weights(1, 4))  # read by a real node and by a constant one
        only_output = g.unary("TANH", shared)
        both = g.unary("RELU", g.weights(1, 4))  # read by a real node and given to the caller
        g.output(only_output, both, g.add(g.add(g.input((1, 4)), shared), both))

    graph = built(write)
    types = {graph.nodes[node].op_type for node in graph.constant_nodes}
    assert types == {"ABS", "RELU"}


def test_a_model_of_constants_only_keeps_all_its_nodes() -> None:
    def write(g: GraphBuilder) -> None:
        g.output(g.unary("TANH", g.unary("ABS", g.weights(1, 4))))

    graph = built(write)
    assert graph.constant_nodes == frozenset()
    assert len(contract(graph, "op").units) == 2
