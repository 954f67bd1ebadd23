"""For any placement of any model: an acyclic plan that covers every node once and is wired soundly.

Structure only, nothing is executed; ``test_cut_exactness`` executes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from model_files import available_models, model_path

from edgeplace.graph.bonds import CROSSING_TYPES
from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import Granularity, atoms, contract, split_unit
from edgeplace.graph.features import replicas_for
from edgeplace.graph.graph import UnitGraph
from edgeplace.placement.cut_points import cut_in_parts
from edgeplace.placement.plan import Placement, Plan, Segment, Source
from edgeplace.placement.segmentation import make_plan
from edgeplace.testing.models import AUTHORED, random_graph
from edgeplace.tflite.reader import Model

GRANULARITIES: tuple[Granularity, ...] = ("op", "unit", "block")
RANDOM_GRAPHS = 120
PLACEMENTS_PER_EXAMPLE = 5


@functools.cache
def unit_graph_of(name: str, granularity: Granularity) -> UnitGraph:
    if name.startswith("random:"):
        model = Model.from_bytes(random_graph(int(name.removeprefix("random:"))), name)
    elif name in AUTHORED:
        model = Model.from_bytes(AUTHORED[name](), name)
    else:
        model = Model.load(model_path(name))
    return contract(build_graph(model), granularity)


@st.composite
def unit_graphs(draw: st.DrawFn) -> UnitGraph:
    names = (*sorted(AUTHORED), *available_models())
    name = draw(st.sampled_from(names) | st.integers(0, RANDOM_GRAPHS - 1).map("random:{}".format))
    return unit_graph_of(name, draw(st.sampled_from(GRANULARITIES)))


@st.composite
def placements(draw: st.DrawFn, unit_graph: UnitGraph) -> Placement:
    """A short pattern of platforms, laid over the units with a stride: it shrinks well on graphs of any size."""
    pattern = draw(st.lists(st.sampled_from(["cpu", "npu", "gpu", "dsp"]), min_size=1, max_size=24))
    stride = draw(st.sampled_from([1, 3, 5, 7]))
    return Placement(tuple(pattern[unit.id * stride % len(pattern)] for unit in unit_graph.units))


def assert_sound(unit_graph: UnitGraph, plan: Plan) -> None:
    graph = unit_graph.graph
    position = {node: at for at, node in enumerate(graph.order)}
    placed = [node for segment in plan.segments for node in segment.nodes]
    assert sorted([*placed, *unit_graph.replicated]) == list(range(len(graph.nodes)))
    assert sorted(unit for segment in plan.segments for unit in segment.units) == list(
        range(len(unit_graph.units))
    )
    outputs = {segment.id: segment.outputs for segment in plan.segments}
    for number, segment in enumerate(plan.segments):
        assert segment.id == number
        assert list(segment.nodes) == sorted(segment.nodes, key=position.__getitem__)
        assert set(segment.nodes) == {node for unit in segment.units for node in unit_graph.units[unit].nodes}
        assert len(segment.sources) == len(segment.inputs) == len(set(segment.inputs))
        assert 1 <= len(segment.outputs) == len(set(segment.outputs))
        for tensor, source in zip(segment.inputs, segment.sources, strict=True):
            assert source.kind != "constant"
            assert graph.tensors[tensor].dtype in CROSSING_TYPES or source.kind == "input"
            assert source.kind != "segment" or source.index < segment.id
            assert_source(unit_graph, outputs, tensor, source)
        assert_self_contained(unit_graph, segment)
    assert len(plan.outputs) == len(graph.outputs)
    for tensor, source in zip(graph.outputs, plan.outputs, strict=True):
        assert_source(unit_graph, outputs, tensor, source)
    for bond in graph.bonds:
        held = {segment.id for segment in plan.segments if set(segment.nodes) & set(bond.nodes)}
        assert len(held) <= 1


def assert_source(
    unit_graph: UnitGraph, outputs: Mapping[int, tuple[int, ...]], tensor: int, source: Source
) -> None:
    graph = unit_graph.graph
    if source.kind == "input":
        assert graph.inputs[source.index] == tensor
    elif source.kind == "constant":
        assert source.index == tensor
        assert graph.tensors[tensor].is_constant
    else:
        assert outputs[source.index][source.output] == tensor


def assert_self_contained(unit_graph: UnitGraph, segment: Segment) -> None:
    """All that a segment reads is given to it, made in it before, copied into it, or constant; it gives what it makes."""
    graph = unit_graph.graph
    copies = replicas_for(graph, segment.nodes, unit_graph.replicated)
    position = {node: at for at, node in enumerate(graph.order)}
    there = set(segment.inputs)
    for node in sorted((*copies, *segment.nodes), key=position.__getitem__):
        for tensor in graph.nodes[node].inputs:
            entry = graph.tensors[tensor] if tensor >= 0 else None
            assert entry is None or tensor in there or entry.is_constant or entry.is_variable
            if entry is not None and entry.is_variable:
                there.add(tensor)
        there.update(graph.nodes[node].outputs)
    assert set(segment.outputs) <= there - set(segment.inputs)


@settings(max_examples=600, derandomize=True, deadline=None)
@given(st.data())
def test_any_placement_gives_a_sound_plan(data: st.DataObject) -> None:
    unit_graph = data.draw(unit_graphs())
    for _ in range(PLACEMENTS_PER_EXAMPLE):
        placement = data.draw(placements(unit_graph))
        plan = make_plan(unit_graph, placement)
        assert_sound(unit_graph, plan)
        for segment in plan.segments:
            assert {placement.platforms[unit] for unit in segment.units} == {segment.platform}
        for before, after in zip(plan.segments, plan.segments[1:], strict=False):
            assert before.platform != after.platform
        assert len(plan.segments) >= len(set(placement.platforms))


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.data())
def test_any_split_of_a_unit_gives_sound_plans(data: st.DataObject) -> None:
    unit_graph = data.draw(unit_graphs())
    wide = [unit.id for unit in unit_graph.units if len(unit.nodes) > 1]
    if not wide:
        return
    unit = data.draw(st.sampled_from(wide))
    split = split_unit(unit_graph, unit, atoms(unit_graph, unit))
    placement = data.draw(placements(split))
    assert_sound(split, make_plan(split, placement))


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.data())
def test_any_number_of_parts_gives_a_sound_plan(data: st.DataObject) -> None:
    unit_graph = data.draw(unit_graphs())
    if not unit_graph.units:
        return
    count = data.draw(st.integers(1, len(unit_graph.units)))
    plan = cut_in_parts(unit_graph, count).plan
    assert len(plan.segments) == count
    assert_sound(unit_graph, plan)
