"""Contraction to units: acyclic, complete, sensible in number, and splittable."""

from __future__ import annotations

import itertools

import pytest
from authored import authored_graph
from model_files import available_models, model_path

from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import MAX_BLOCKS, Granularity, atoms, contract, format_ids, split_unit
from edgeplace.graph.graph import Bond, Graph, Unit, UnitGraph
from edgeplace.graph.groups import Groups
from edgeplace.testing.model_builder import Builder, fb
from edgeplace.testing.models import AUTHORED, random_graph
from edgeplace.testing.toy import toy_graph
from edgeplace.tflite.reader import Model

GRANULARITIES: tuple[Granularity, ...] = ("op", "unit", "block")


def fetched(name: str) -> Graph:
    return build_graph(Model.load(model_path(name)))


def with_bonds(graph: Graph, *bonds: tuple[int, ...]) -> Graph:
    return Graph(**{**vars(graph), "bonds": tuple(Bond(nodes, f"rule {nodes}") for nodes in bonds)})


def assert_sound(unit_graph: UnitGraph) -> None:
    """Every node once, units numbered in an order that works, links both ways, nodes in execution order."""
    graph = unit_graph.graph
    position = {node: at for at, node in enumerate(graph.order)}
    placed = [node for unit in unit_graph.units for node in unit.nodes]
    assert sorted([*placed, *unit_graph.replicated]) == list(range(len(graph.nodes)))
    unit_of = {node: unit.id for unit in unit_graph.units for node in unit.nodes}
    links = set()
    for tensor, maker in graph.producer.items():
        for reader in graph.consumers.get(tensor, ()):
            if maker in unit_of and reader in unit_of and unit_of[maker] != unit_of[reader]:
                links.add((unit_of[maker], unit_of[reader]))
    assert all(before < after for before, after in links)
    assert {(a, b) for a, targets in enumerate(unit_graph.successors) for b in targets} == links
    assert {(a, b) for b, sources in enumerate(unit_graph.predecessors) for a in sources} == links
    for number, unit in enumerate(unit_graph.units):
        assert unit.id == number
        assert list(unit.nodes) == sorted(unit.nodes, key=position.__getitem__)
        assert unit.name
        assert len(unit.name) < 80
    for bond in graph.bonds:
        assert len({unit_of[node] for node in bond.nodes if node in unit_of}) <= 1


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("name", sorted(AUTHORED))
def test_authored_models_contract_soundly(name: str, granularity: Granularity) -> None:
    assert_sound(contract(authored_graph(name), granularity))


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_random_graphs_contract_soundly(granularity: Granularity) -> None:
    for seed in range(60):
        assert_sound(contract(build_graph(Model.from_bytes(random_graph(seed))), granularity))


@pytest.mark.parametrize("name", available_models())
def test_fetched_models_contract_soundly_and_to_sensible_numbers(name: str) -> None:
    graph = fetched(name)
    op, unit, block = (contract(graph, granularity) for granularity in GRANULARITIES)
    for unit_graph in (op, unit, block):
        assert_sound(unit_graph)
    assert len(block.units) <= min(MAX_BLOCKS, len(op.units))
    assert len(block.units) <= len(unit.units) <= len(op.units)
    assert len(unit.units) <= 40
    assert contract(graph, "unit") == unit  # the same every time


@pytest.mark.parametrize(
    ("name", "fewest", "most"),
    [
        ("face_detection_short_range", 12, 30),
        ("face_landmark", 12, 30),
        ("face_detection_full_range_sparse", 12, 30),
        ("hand_landmark_lite", 12, 30),
        ("selfie_segmentation", 12, 30),
        ("hand_recrop", 8, 20),
        ("okay_nabu", 3, 6),
        ("image_classification", 5, 12),
        ("visual_wake_words", 10, 24),
        ("keyword_spotting", 6, 12),
        ("anomaly_detection", 5, 10),
        ("keyword_spotting_on_off_v3", 12, 30),
        ("keyword_spotting_on_off_v3.float32.tflite", 12, 30),
    ],
)
def test_real_models_have_a_handful_to_thirty_units(name: str, fewest: int, most: int) -> None:
    assert fewest <= len(contract(fetched(name), "unit").units) <= most


def test_op_is_one_node_per_unit_when_nothing_is_bonded() -> None:
    unit_graph = contract(authored_graph("branchy"), "op")
    assert [unit.nodes for unit in unit_graph.units] == [(node,) for node in unit_graph.graph.order]
    assert all(unit.bonds == () for unit in unit_graph.units)


def test_elementwise_operators_go_with_what_makes_their_input() -> None:
    graph = authored_graph("branchy")
    unit_graph = contract(graph, "unit")
    for unit in unit_graph.units:
        types = [graph.nodes[node].op_type for node in unit.nodes]
        assert set(types) & {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D"}, types
    assert len(unit_graph.units) < len(graph.nodes)


def test_unknown_custom_operators_and_control_flow_stay_alone() -> None:
    for name, op_type in (
        ("unknown_custom_op", "CUSTOM"),
        ("while_loop", "WHILE"),
        ("composite", "STABLEHLO_COMPOSITE"),
    ):
        graph = authored_graph(name)
        unit_graph = contract(graph, "unit")
        number = next(node.id for node in graph.nodes if node.op_type == op_type)
        assert (number,) in [unit.nodes for unit in unit_graph.units], name


def test_a_squeeze_and_excite_gate_is_not_merged_around_its_branch() -> None:
    """The gate's product reads the trunk directly and through the branch: merging it with the trunk alone is a circle."""
    for granularity in GRANULARITIES:
        assert_sound(contract(authored_graph("cycle_trap"), granularity))


def test_there_is_no_other_granularity() -> None:
    with pytest.raises(ValueError, match="'layer' is no granularity"):
        contract(toy_graph(3), "layer")  # type: ignore[arg-type]


# --- bonds and the paths between their members ---


def test_bonds_take_along_what_lies_on_a_path_between() -> None:
    graph = with_bonds(toy_graph(6, [(0, 1), (1, 2), (2, 4), (0, 3), (3, 4), (4, 5)]), (1, 4))
    units = contract(graph, "op").units
    assert [unit.nodes for unit in units] == [(0,), (3,), (1, 2, 4), (5,)]
    assert units[2].bonds == ("rule (1, 4)", "on a path between nodes that stay together: 2")


def test_bonds_that_share_a_node_are_one() -> None:
    graph = with_bonds(toy_graph(5), (0, 1), (1, 2))
    assert [unit.nodes for unit in contract(graph, "op").units] == [(0, 1, 2), (3,), (4,)]


def test_bonds_that_need_each_other_are_one() -> None:
    """0 feeds 1 and 2 feeds 3: the groups {0, 3} and {1, 2} would each have to run before the other."""
    graph = with_bonds(toy_graph(5, [(0, 1), (2, 3), (3, 4)]), (0, 3), (1, 2))
    units = contract(graph, "op").units
    assert [unit.nodes for unit in units] == [(0, 1, 2, 3), (4,)]
    assert set(units[0].bonds) == {"rule (0, 3)", "rule (1, 2)"}


def test_what_exports_nothing_joins_its_feeder() -> None:
    """A sink of state (only ASSIGN_VARIABLE and its handle) has nothing to give; runtimes want an output."""
    builder = Builder()
    g = builder.graph()
    x = g.unary("RELU", g.input((1, 4)))
    handle = g.make("VAR_HANDLE", [], (), fb.VarHandleOptionsT(container="", sharedName="s"), "resource")
    g.op("ASSIGN_VARIABLE", [handle, x], [], fb.AssignVariableOptionsT())
    g.output(g.unary("TANH", x))
    units = contract(build_graph(Model.from_bytes(builder.finish())), "op").units
    assert [unit.nodes for unit in units] == [(0, 1, 2), (3,)]
    assert any("gives nothing to others" in text for text in units[0].bonds)


# --- groups ---


def test_groups_refuse_a_merge_that_needs_a_third() -> None:
    groups = Groups(toy_graph(3, [(0, 1), (1, 2), (0, 2)]), frozenset())
    assert not groups.may_merge(0, 2)
    assert groups.may_merge(0, 1)
    assert groups.may_merge(1, 2)
    assert groups.edge_bytes(0, 2) == groups.graph.tensors[1].size_bytes
    merged = groups.merge(0, 1)
    assert groups.may_merge(merged, 2)
    assert groups.members == {0: [0, 1], 2: [2]}
    assert groups.in_order() == [0, 2]


def test_groups_that_are_not_neighbours_may_merge_when_nothing_is_between() -> None:
    groups = Groups(toy_graph(4, [(0, 1), (0, 2), (1, 3), (2, 3)]), frozenset())
    assert groups.may_merge(1, 2)
    assert not groups.may_merge(0, 3)


# --- splitting a unit ---


def test_splitting_makes_units_of_the_parts() -> None:
    whole = contract(with_bonds(toy_graph(6), (1, 2)), "unit")
    assert len(whole.units) < 6
    unit = max(whole.units, key=lambda unit: len(unit.nodes))
    pieces = atoms(whole, unit.id)
    assert [node for piece in pieces for node in piece] == list(unit.nodes)
    assert (1, 2) in [piece for unit in whole.units for piece in atoms(whole, unit.id)]
    parts = split_unit(whole, unit.id, pieces)
    assert_sound(parts)
    assert len(parts.units) == len(whole.units) + len(pieces) - 1
    assert parts.granularity == whole.granularity


def test_every_unit_of_real_graphs_splits_into_its_atoms() -> None:
    for name in ("branchy", "cycle_trap", "fp16_weights", "resource_variables", "dynamic_reshape"):
        whole = contract(authored_graph(name), "block")
        for unit in whole.units:
            assert_sound(split_unit(whole, unit.id, atoms(whole, unit.id)))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([(0,), (1, 2)], "no partition"),
        ([(0, 1, 2, 3), ()], "no partition"),
        ([(0, 1), (2, 3)], "nodes 1-2 must stay together"),
        ([(0, 3), (1, 2)], "need each other"),
    ],
)
def test_impossible_splits_are_refused(parts: list[tuple[int, ...]], message: str) -> None:
    graph = with_bonds(toy_graph(4, macs=[1, 1, 1, 1]), (1, 2))
    whole = UnitGraph(graph, "block", (Unit(0, (0, 1, 2, 3), "all"),), frozenset(), ((),), ((),))
    with pytest.raises(ValueError, match=message):
        split_unit(whole, 0, parts)


def test_ids_for_people() -> None:
    assert format_ids([7, 0, 1, 2, 9, 10]) == "0-2, 7, 9-10"
    assert format_ids([]) == ""
    assert format_ids(itertools.chain([3])) == "3"
