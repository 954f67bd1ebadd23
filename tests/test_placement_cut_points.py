"""Cutting at operators, at tensors, and into equal parts."""

from __future__ import annotations

import pytest
from authored import authored_units

from edgeplace.errors import InputError, UnknownNameError
from edgeplace.placement.cut_points import cut_at, cut_in_parts
from edgeplace.placement.plan import Plan
from edgeplace.testing.toy import BRANCHES, toy_unit_graph


def nodes(plan: Plan) -> list[tuple[int, ...]]:
    return [segment.nodes for segment in plan.segments]


@pytest.mark.parametrize(
    ("points", "parts"),
    [
        (["2"], [(0, 1), (2, 3, 4)]),
        (["t1"], [(0, 1), (2, 3, 4)]),
        (["3", "t0"], [(0,), (1, 2), (3, 4)]),
        (["2", "2", "t1"], [(0, 1), (2, 3, 4)]),
        (["0"], [(0, 1, 2, 3, 4)]),
        (["t4"], [(0, 1, 2, 3, 4)]),
        ([], [(0, 1, 2, 3, 4)]),
    ],
)
def test_cuts_in_front_of_operators_and_behind_tensors(
    points: list[str], parts: list[tuple[int, ...]]
) -> None:
    result = cut_at(toy_unit_graph(5), points)
    assert nodes(result.plan) == parts
    assert result.notes == ()
    assert {segment.platform for segment in result.plan.segments} == {""}


def test_a_cut_through_what_belongs_together_moves_and_says_so() -> None:
    unit_graph = authored_units("resource_variables")
    bonded = next(unit for unit in unit_graph.units if len(unit.nodes) > 1)
    result = cut_at(unit_graph, [str(bonded.nodes[-1])])
    (note,) = result.notes
    assert "stay together in part" in note
    assert "state: VAR_HANDLE" in note
    holders = [segment for segment in result.plan.segments if set(segment.nodes) & set(bonded.nodes)]
    assert len(holders) == 1


def test_unknown_places_get_the_nearest_name() -> None:
    unit_graph = toy_unit_graph(3)
    with pytest.raises(UnknownNameError, match="no operator 7") as caught:
        cut_at(unit_graph, ["7"])
    assert caught.value.hint == "operators are 0 to 2"
    with pytest.raises(UnknownNameError, match="no tensor 'tt1'") as caught:
        cut_at(unit_graph, ["tt1"])
    assert "t1" in caught.value.hint
    with pytest.raises(InputError, match="no operator makes tensor 'input'"):
        cut_at(unit_graph, ["input"])


@pytest.mark.parametrize("count", range(1, 9))
def test_parts_are_as_many_as_asked_and_balanced(count: int) -> None:
    unit_graph = toy_unit_graph(8, BRANCHES)
    plan = cut_in_parts(unit_graph, count).plan
    assert len(plan.segments) == count
    assert sorted(node for part in nodes(plan) for node in part) == list(range(8))


def test_work_is_shared_out_evenly() -> None:
    graph = authored_units("conv_chain")
    plan = cut_in_parts(graph, 2).plan
    work = [
        sum(graph.graph.nodes[node].macs + graph.graph.nodes[node].activation_bytes for node in part)
        for part in nodes(plan)
    ]
    largest = max(node.macs + node.activation_bytes for node in graph.graph.nodes)
    assert abs(work[0] - work[1]) <= largest


@pytest.mark.parametrize("count", [0, -1, 4])
def test_no_more_parts_than_pieces(count: int) -> None:
    with pytest.raises(InputError, match="3 pieces that can be separated"):
        cut_in_parts(toy_unit_graph(3), count)
