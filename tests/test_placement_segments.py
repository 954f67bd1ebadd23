"""Files of segments: complete, shared, and named by their content."""

from __future__ import annotations

from dataclasses import replace

from authored import authored_model

from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import contract
from edgeplace.graph.features import replicas_for
from edgeplace.placement.plan import Placement
from edgeplace.placement.segmentation import lone_segment, make_plan
from edgeplace.placement.segments import SegmentCutter
from edgeplace.testing.model_builder import Builder
from edgeplace.testing.models import AUTHORED
from edgeplace.tflite.reader import Model


def test_a_segment_is_cut_once_whoever_asks() -> None:
    model = Model.from_bytes(AUTHORED["branchy"]())
    unit_graph = contract(build_graph(model), "op")
    cutter = SegmentCutter(model, unit_graph)
    segment = make_plan(unit_graph, Placement(("cpu",) * len(unit_graph.units))).segments[0]
    file = cutter.file(segment)
    assert cutter.file(replace(segment, platform="npu", id=3)) is file
    assert SegmentCutter(model, unit_graph).file(segment).sha256 == file.sha256


def test_a_file_holds_its_nodes_and_their_copied_constants() -> None:
    model = Model.from_bytes(AUTHORED["fp16_weights"]())
    unit_graph = contract(build_graph(model), "op")
    graph = unit_graph.graph
    cutter = SegmentCutter(model, unit_graph)
    for unit in unit_graph.units:
        segment = lone_segment(unit_graph, unit.nodes)
        cut = Model.from_bytes(cutter.file(segment).to_bytes())
        (subgraph,) = cut.subgraphs
        types = [operator.op_type for operator in subgraph.operators]
        assert types[-len(unit.nodes) :] == [graph.nodes[node].op_type for node in unit.nodes]
        copies = replicas_for(graph, unit.nodes, unit_graph.replicated)
        assert types[: -len(unit.nodes)] == ["DEQUANTIZE"] * len(copies)
        assert copies or graph.nodes[unit.nodes[0]].op_type != "CONV_2D"
        assert [subgraph.tensors[t].name for t in subgraph.inputs] == [
            graph.tensors[t].name for t in segment.inputs
        ]
        assert [subgraph.tensors[t].name for t in subgraph.outputs] == [
            graph.tensors[t].name for t in segment.outputs
        ]


def test_shapes_in_force_are_written() -> None:
    builder = Builder()
    g = builder.graph()
    x = g.input((1, 4), shape_signature=(-1, 4))
    y = g.make("RELU", [x], (1, 4), shape_signature=(-1, 4))
    z = g.make("TANH", [y], (1, 4), shape_signature=(-1, 4))
    g.output(z)
    model = Model.from_bytes(builder.finish())
    unit_graph = contract(build_graph(model, shapes={x: (3, 4), y: (3, 4), z: (3, 4)}), "op")
    cut = Model.from_bytes(SegmentCutter(model, unit_graph).file(lone_segment(unit_graph, [1])).to_bytes())
    assert [tensor.shape for tensor in cut.subgraphs[0].tensors] == [(3, 4), (3, 4)]


def test_constants_that_are_outputs_come_from_the_model() -> None:
    model = authored_model("constant_output")
    unit_graph = contract(build_graph(model), "op")
    plan = make_plan(unit_graph, Placement(("cpu",) * len(unit_graph.units)))
    constants = SegmentCutter(model, unit_graph).constants(plan)
    asked = {source.index for source in plan.outputs if source.kind == "constant"}
    assert asked
    assert constants.keys() == asked
    for number, array in constants.items():
        tensor = unit_graph.graph.tensors[number]
        assert (array.shape, array.dtype.name) == (tensor.shape, tensor.dtype)
        assert array.tobytes() == bytes(model.constant(tensor.buffer))
