"""Plans of placements: few segments, right wiring, nothing lost. Worked out by hand on small graphs."""

from __future__ import annotations

import pytest
from authored import authored_units

from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import contract
from edgeplace.graph.graph import UnitGraph
from edgeplace.placement.plan import Placement, Plan, Source
from edgeplace.placement.segmentation import lone_segment, make_plan, plan_of_groups
from edgeplace.testing.model_builder import Builder, fb
from edgeplace.testing.toy import BRANCHES, CHAIN, RESIDUAL, toy_graph, toy_space, toy_unit_graph
from edgeplace.tflite.reader import Model


def place(unit_graph: UnitGraph, letters: str) -> Plan:
    """One letter per unit: c(pu), n(pu), g(pu)."""
    names = {"c": "cpu", "n": "npu", "g": "gpu"}
    return make_plan(unit_graph, Placement(tuple(names[letter] for letter in letters)))


def over_edges(nodes: int, *edges: tuple[int, int]) -> UnitGraph:
    """A unit graph of single toy nodes over these edges."""
    return contract(toy_graph(nodes, edges), "op")


def shape(plan: Plan) -> list[tuple[str, tuple[int, ...]]]:
    return [(segment.platform, segment.nodes) for segment in plan.segments]


@pytest.mark.parametrize("form", [CHAIN, RESIDUAL, BRANCHES])
def test_one_platform_is_one_segment_with_the_graphs_own_ends(form: str) -> None:
    unit_graph = toy_unit_graph(6, form)
    (segment,) = place(unit_graph, "cccccc").segments
    assert segment.nodes == unit_graph.graph.order
    assert segment.inputs == unit_graph.graph.inputs
    assert segment.outputs == unit_graph.graph.outputs
    assert segment.sources == (Source("input", 0),)


def test_a_chain_is_cut_where_the_platform_changes() -> None:
    plan = place(toy_unit_graph(5), "ccnnc")
    assert shape(plan) == [("cpu", (0, 1)), ("npu", (2, 3)), ("cpu", (4,))]
    assert plan.segments[1].sources == (Source("segment", 0, 0),)
    assert plan.segments[1].inputs == (2,)
    assert plan.outputs == (Source("segment", 2, 0),)
    assert plan.transfers == 2


def test_branches_on_one_platform_are_one_segment() -> None:
    """0 feeds 1, 2, 3; 4 joins them. 1 and 3 are not neighbours, yet nothing is between them."""
    assert shape(place(toy_unit_graph(5, BRANCHES), "cncnc")) == [
        ("cpu", (0, 2)),
        ("npu", (1, 3)),
        ("cpu", (4,)),
    ]


def test_growing_by_neighbourhood_would_make_a_circle() -> None:
    """0 -> 1 -> 2 and 0 -> 2: units 0 and 2 are neighbours on cpu, but 1 on npu stands between them."""
    unit_graph = over_edges(3, (0, 1), (1, 2), (0, 2))
    plan = place(unit_graph, "cnc")
    assert shape(plan) == [("cpu", (0,)), ("npu", (1,)), ("cpu", (2,))]
    assert plan.segments[2].inputs == (1, 2)
    assert plan.segments[2].sources == (Source("segment", 0, 0), Source("segment", 1, 0))


def test_the_order_of_platforms_is_chosen_for_few_segments() -> None:
    """Two independent chains: c-n and n-c-... Starting on npu needs fewer segments than starting on cpu."""
    unit_graph = over_edges(5, (0, 2), (1, 3), (2, 4), (3, 4))
    # Chains: 0 (npu) -> 2 (cpu), 1 (cpu) -> 3 (cpu), joined by 4 (npu). npu first: n(0) c(1 2 3) n(4).
    assert shape(place(unit_graph, "ncccn")) == [("npu", (0,)), ("cpu", (1, 2, 3)), ("npu", (4,))]


def test_three_platforms_are_searched_beyond_the_greedy_choice() -> None:
    """The best schedule waits with a platform until all its units are ready."""
    # a: 0(c) -> 1(n) -> 2(g);  b: 3(n) -> 4(g);  c: 5(g) alone. All g can be one segment at the end.
    unit_graph = over_edges(6, (0, 1), (1, 2), (3, 4))
    assert shape(place(unit_graph, "cngngg")) == [
        ("cpu", (0,)),
        ("npu", (1, 3)),
        ("gpu", (2, 4, 5)),
    ]


def test_the_same_placement_gives_the_same_plan() -> None:
    space = toy_space(8, ("cpu", "npu", "gpu"), form=RESIDUAL)
    for index in range(0, space.size, 97):
        first = make_plan(space.unit_graph, space.at(index))
        assert make_plan(space.unit_graph, space.at(index)) == first


def test_a_tensor_for_two_segments_is_given_once() -> None:
    plan = place(toy_unit_graph(5, BRANCHES), "cngnc")
    maker = plan.segments[0]
    assert len(maker.outputs) == len(set(maker.outputs))
    readers = [source for segment in plan.segments[1:] for source in segment.sources if source.index == 0]
    assert len(readers) >= 2


def test_the_same_tensor_read_twice_is_one_input_and_given_twice_is_one_output() -> None:
    unit_graph = authored_units("same_tensor_twice")
    plan = make_plan(unit_graph, Placement(tuple("ab"[unit.id % 2] for unit in unit_graph.units)))
    for segment in plan.segments:
        assert len(set(segment.inputs)) == len(segment.inputs)
        assert len(set(segment.outputs)) == len(segment.outputs)
    assert len(plan.outputs) == len(unit_graph.graph.outputs)
    assert len(set(plan.outputs)) < len(plan.outputs)


def test_inputs_and_constants_may_be_outputs() -> None:
    unit_graph = authored_units("input_as_output")
    plan = make_plan(unit_graph, Placement(("cpu",) * len(unit_graph.units)))
    assert "input" in {source.kind for source in plan.outputs}
    unit_graph = authored_units("constant_output")
    plan = make_plan(unit_graph, Placement(("cpu",) * len(unit_graph.units)))
    (constant,) = {source for source in plan.outputs if source.kind == "constant"}
    assert unit_graph.graph.tensors[constant.index].is_constant


def test_without_operators_there_is_nothing_to_run() -> None:
    unit_graph = authored_units("zero_ops")
    plan = make_plan(unit_graph, Placement(()))
    assert plan.segments == ()
    assert {source.kind for source in plan.outputs} == {"input"}
    assert len(plan.outputs) == len(unit_graph.graph.outputs)


def test_dead_nodes_stay_and_give_one_tensor_when_they_are_alone() -> None:
    unit_graph = authored_units("unused_outputs")
    graph = unit_graph.graph
    dead = [
        unit.id
        for unit in unit_graph.units
        if not any(graph.consumers.get(t) or t in graph.outputs for t in graph.nodes[unit.nodes[-1]].outputs)
    ]
    assert dead
    plan = make_plan(
        unit_graph, Placement(tuple("npu" if unit.id in dead else "cpu" for unit in unit_graph.units))
    )
    assert sorted(node for segment in plan.segments for node in segment.nodes) == list(graph.order)
    for segment in plan.segments:
        assert len(segment.outputs) >= 1
    lonely = [segment for segment in plan.segments if segment.platform == "npu"]
    assert all(len(segment.outputs) == 1 for segment in lonely)


def test_outputs_nobody_reads_are_not_given() -> None:
    unit_graph = authored_units("multi_output")
    graph = unit_graph.graph
    split = next(node for node in graph.nodes if node.op_type == "SPLIT")
    plan = make_plan(unit_graph, Placement(tuple("ab"[unit.id % 2] for unit in unit_graph.units)))
    maker = next(segment for segment in plan.segments if split.id in segment.nodes)
    inside = set(maker.nodes)
    for tensor in maker.outputs:
        assert tensor in graph.outputs or not set(graph.consumers[tensor]) <= inside


def test_a_copied_producer_that_is_an_output_is_given_by_the_first_copy() -> None:
    builder = Builder()
    g = builder.graph()
    x = g.input((1, 4))
    weights = g.unary("ABS", g.weights(1, 4))
    first = g.add(x, weights)
    g.output(weights, g.mul(first, weights))
    unit_graph = contract(build_graph(Model.from_bytes(builder.finish())), "op")
    plan = place(unit_graph, "cn")
    assert [segment.nodes for segment in plan.segments] == [(1,), (2,)]
    assert plan.segments[0].outputs == (weights, first)
    assert plan.segments[1].inputs == (first,)
    assert plan.outputs[0] == Source("segment", 0, 0)


def test_a_variable_may_be_an_output() -> None:
    builder = Builder()
    g = builder.graph()
    state = g.tensor((1, 64), variable=True)
    x = g.unary("RELU", g.input((1, 10)))
    y = g.make("SVDF", [x, g.weights(16, 10), g.weights(16, 4), -1, state], (1, 16), fb.SVDFOptionsT(rank=1))
    g.output(y, state)
    unit_graph = contract(build_graph(Model.from_bytes(builder.finish())), "op")
    plan = place(unit_graph, "cn")
    assert plan.segments[1].outputs == (y, state)
    assert plan.outputs == (Source("segment", 1, 0), Source("segment", 1, 1))


def test_a_lone_segment_takes_what_it_reads_and_gives_what_others_read() -> None:
    unit_graph = toy_unit_graph(5, BRANCHES)
    segment = lone_segment(unit_graph, [1, 2], "npu")
    assert segment.platform == "npu"
    assert segment.nodes == segment.units == (1, 2)
    assert segment.inputs == (1,)
    assert segment.outputs == (2, 3)
    assert segment.sources == ()
    assert lone_segment(unit_graph, range(5)).outputs == unit_graph.graph.outputs


def test_wrong_arguments_are_refused() -> None:
    unit_graph = toy_unit_graph(3)
    with pytest.raises(ValueError, match="2 platforms for 3 units"):
        make_plan(unit_graph, Placement(("cpu", "cpu")))
    with pytest.raises(ValueError, match="every unit once"):
        plan_of_groups(unit_graph, [("cpu", (0, 1))])
    with pytest.raises(ValueError, match="unit 1 stands before what it needs"):
        plan_of_groups(unit_graph, [("cpu", (1, 2)), ("npu", (0,))])
