"""Plans for people who only want a model in pieces: cut at operators, at tensors, or into parts of equal work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeplace.errors import InputError, UnknownNameError
from edgeplace.graph.contract import format_ids
from edgeplace.graph.graph import Graph, UnitGraph
from edgeplace.placement.plan import Plan
from edgeplace.placement.segmentation import plan_of_groups
from edgeplace.registry import nearest_name_hint


@dataclass(frozen=True, slots=True)
class CutResult:
    """A plan whose segments name no platform, and what had to be done differently from what was asked.

    Attributes:
        notes: One sentence for each cut point that fell where nothing may be separated.
    """

    plan: Plan
    notes: tuple[str, ...] = ()


def cut_at(unit_graph: UnitGraph, points: Sequence[str]) -> CutResult:
    """Cut in front of operators (``"12"``) and behind tensors (``"conv/Relu"``), in execution order.

    What must stay together goes whole into the part that its first node is in (later, when something it needs is in
    a later part), and a note says so.

    Raises:
        UnknownNameError: There is no such operator or tensor.
        InputError: A tensor that no operator makes (there is nothing before it to cut off).
    """
    graph = unit_graph.graph
    position = {node: at for at, node in enumerate(graph.order)}
    cuts = sorted({_cut_position(graph, point, position) for point in points})
    part_of_node = {node: sum(at >= cut for cut in cuts) for node, at in position.items()}
    part_of_unit: list[int] = []
    notes: list[str] = []
    for unit in unit_graph.units:
        parts = {part_of_node[node] for node in unit.nodes}
        needed = [part_of_unit[before] for before in unit_graph.predecessors[unit.id]]
        part = max([min(parts), *needed])
        part_of_unit.append(part)
        if len(parts) > 1:
            why = "; ".join(unit.bonds) or f"granularity '{unit_graph.granularity}'"
            notes.append(f"nodes {format_ids(unit.nodes)} stay together in part {part} ({why})")
    return _parts_plan(unit_graph, part_of_unit, notes)


def cut_in_parts(unit_graph: UnitGraph, parts: int) -> CutResult:
    """Cut into ``parts`` parts of about equal work (multiply-accumulates plus bytes moved).

    Raises:
        InputError: The graph has fewer units than that, or ``parts`` is less than one.
    """
    units = unit_graph.units
    if not 1 <= parts <= max(len(units), 1):
        raise InputError(
            f"cannot cut into {parts} parts: there are {len(units)} pieces that can be separated",
            hint="choose fewer parts, or a finer granularity",
        )
    nodes = unit_graph.graph.nodes
    work = [
        sum(nodes[node].macs + nodes[node].activation_bytes for node in unit.nodes) or 1 for unit in units
    ]
    part_of_unit: list[int] = []
    part = 0
    done = 0
    for unit, effort in enumerate(work):
        # Go on to the next part when this unit's middle lies beyond the border, or when only just enough units are
        # left to give each remaining part one; but never leave a part empty.
        beyond = (done + effort / 2) * parts >= sum(work) * (part + 1)
        last_chance = len(units) - unit == parts - part - 1
        if part_of_unit and part_of_unit[-1] == part and part < parts - 1 and (beyond or last_chance):
            part += 1
        part_of_unit.append(part)
        done += effort
    return _parts_plan(unit_graph, part_of_unit, [])


def _cut_position(graph: Graph, point: str, position: dict[int, int]) -> int:
    if point.isdecimal():
        if int(point) not in position:
            raise UnknownNameError(
                f"there is no operator {point}", hint=f"operators are 0 to {len(graph.nodes) - 1}"
            )
        return position[int(point)]
    by_name = {
        tensor.name: tensor.index for tensor in reversed(graph.tensors) if tensor.index in graph.producer
    }
    if point in by_name:
        return position[graph.producer[by_name[point]]] + 1
    if any(tensor.name == point for tensor in graph.tensors):
        raise InputError(f"no operator makes tensor '{point}', so nothing lies before it to cut off")
    raise UnknownNameError(f"there is no tensor '{point}'", hint=nearest_name_hint(point, by_name))


def _parts_plan(unit_graph: UnitGraph, part_of_unit: Sequence[int], notes: Sequence[str]) -> CutResult:
    parts: dict[int, list[int]] = {}
    for unit, part in enumerate(part_of_unit):
        parts.setdefault(part, []).append(unit)
    plan = plan_of_groups(unit_graph, [("", parts[part]) for part in sorted(parts)])
    return CutResult(plan, tuple(notes))
