"""Does a delegate map fit its model? Every mistake with file and line, all at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from edgeplace.delegate_map.model import DelegateMap
from edgeplace.graph.contract import contract, format_ids
from edgeplace.graph.graph import Graph, UnitGraph
from edgeplace.placement.plan import Placement, Plan
from edgeplace.placement.segmentation import plan_of_groups
from edgeplace.registry import nearest_name_hint

Problems = list[tuple[tuple[str | int, ...], str]]


def validate_map(
    delegate_map: DelegateMap,
    *,
    nodes: Collection[int] | None = None,
    model_sha256: str | None = None,
) -> None:
    """Check a map by itself: every node placed once, platforms known, segments numbered.

    Args:
        nodes: The nodes that must be placed; by default all of ``model.nodes`` but the carried ones.
        model_sha256: Hash of the model at hand; compared with the map's when given.

    Raises:
        ProfileError: All that is wrong, each with its line (the hash alone, when that is wrong).
    """
    model = delegate_map.model
    if model_sha256 is not None and model_sha256 != model.sha256:
        message = f"the map is for another model: it says sha256 {model.sha256}, the model at hand has {model_sha256}"
        delegate_map.refuse([(("model", "sha256"), message)])
    if nodes is None:
        nodes = set(range(model.nodes)) - set(model.carried)
    problems = [*_platform_problems(delegate_map), *_node_problems(delegate_map, frozenset(nodes))]
    if problems:
        delegate_map.refuse(problems)


def plan_from_map(delegate_map: DelegateMap, graph: Graph) -> Plan:
    """The plan that a map describes, whoever wrote it: its segments as they stand, wired by the graph.

    Raises:
        ProfileError: The map is for another model or entry, does not place every node once, separates nodes that
            must stay together, or its segments cannot run in that order.
    """
    model = delegate_map.model
    if graph.model_sha256 == model.sha256 and graph.signature != model.signature:
        message = f"the map is for signature '{model.signature}', not for '{graph.signature}'"
        delegate_map.refuse([(("model", "signature"), message)])
    if graph.model_sha256 == model.sha256 and len(graph.nodes) != model.nodes:
        delegate_map.refuse(
            [(("model", "nodes"), f"the model has {len(graph.nodes)} nodes, not {model.nodes}")]
        )
    unit_graph = contract(graph, "op")
    placed = {node for unit in unit_graph.units for node in unit.nodes}
    validate_map(delegate_map, nodes=placed, model_sha256=graph.model_sha256)
    segment_of = {
        node: number
        for number, segment in enumerate(delegate_map.segments)
        for node in segment.nodes
        if node in placed
    }
    problems = _bond_problems(unit_graph, segment_of) or _order_problems(unit_graph, segment_of)
    if problems:
        delegate_map.refuse(problems)
    groups = [
        (segment.platform, [unit.id for unit in unit_graph.units if segment_of[unit.nodes[0]] == number])
        for number, segment in enumerate(delegate_map.segments)
    ]
    return plan_of_groups(unit_graph, groups)


def placement_of(delegate_map: DelegateMap, unit_graph: UnitGraph) -> Placement | None:
    """The map's placement over these units, or ``None`` when it divides one of them or misses a node."""
    platform_of = delegate_map.platform_of_nodes
    chosen: list[str] = []
    for unit in unit_graph.units:
        platforms = {platform_of.get(node) for node in unit.nodes}
        platform = platforms.pop()
        if platforms or platform is None:
            return None
        chosen.append(platform)
    return Placement(tuple(chosen))


def _platform_problems(delegate_map: DelegateMap) -> Problems:
    problems: Problems = []
    for number, segment in enumerate(delegate_map.segments):
        if segment.id != number:
            message = (
                f"the id is {segment.id}, and this is segment {number} in execution order (they count from 0)"
            )
            problems.append((("segments", number, "id"), message))
        if segment.platform not in delegate_map.platforms:
            hint = nearest_name_hint(segment.platform, delegate_map.platforms)
            message = f"no platform named '{segment.platform}' in this map; {hint}"
            problems.append((("segments", number, "platform"), message))
    return problems


def _node_problems(delegate_map: DelegateMap, wanted: frozenset[int]) -> Problems:
    problems: Problems = []
    seen: dict[int, int] = {}
    last = delegate_map.model.nodes - 1
    for number, segment in enumerate(delegate_map.segments):
        at = ("segments", number, "nodes")
        unknown = [node for node in segment.nodes if node > last]
        if unknown:
            problems.append((at, f"{_nodes(unknown)} not in the model, whose last node is {last}"))
        again: dict[int, list[int]] = {}
        for node in segment.nodes:
            if node not in wanted:
                continue
            if node in seen:
                again.setdefault(seen[node], []).append(node)
            seen.setdefault(node, number)
        for other, twice in again.items():
            where = (
                f"in segment {other} and in segment {number}" if other != number else f"in segment {number}"
            )
            problems.append((at, f"{_nodes(twice)} placed twice: {where}"))
        if not any(node in wanted for node in segment.nodes):
            problems.append((at, f"segment {number} has no node to run"))
    missing = wanted - seen.keys()
    if missing:
        problems.append((("segments",), f"{_nodes(missing)} placed nowhere"))
    return problems


def _bond_problems(unit_graph: UnitGraph, segment_of: Mapping[int, int]) -> Problems:
    problems: Problems = []
    for unit in unit_graph.units:
        segments = sorted({segment_of[node] for node in unit.nodes})
        if len(segments) > 1:
            reason = "; ".join(unit.bonds) or "they depend on each other"
            message = f"nodes {format_ids(unit.nodes)} must stay in one segment, not in {_numbers(segments)}: {reason}"
            problems.append((("segments", segments[0], "nodes"), message))
    return problems


def _order_problems(unit_graph: UnitGraph, segment_of: Mapping[int, int]) -> Problems:
    """Segments that stand before what they need; those that need each other can stand in no order at all."""
    needs: dict[int, set[int]] = {number: set() for number in sorted(set(segment_of.values()))}
    example: dict[tuple[int, int], tuple[int, int]] = {}
    for unit in unit_graph.units:
        reader = segment_of[unit.nodes[0]]
        for before in unit_graph.predecessors[unit.id]:
            maker = segment_of[unit_graph.units[before].nodes[0]]
            if maker != reader:
                needs[reader].add(maker)
                example.setdefault((reader, maker), (unit.nodes[0], unit_graph.units[before].nodes[-1]))
    circle = _circle(needs)
    if circle:
        message = f"segments {_numbers(circle)} need each other: no order works; move nodes until none does"
        return [(("segments", min(circle), "nodes"), message)]
    problems: Problems = []
    for (reader, maker), (reads, makes) in example.items():
        if maker > reader:
            message = (
                f"segment {reader} stands before segment {maker}, whose result it needs"
                f" (node {reads} reads what node {makes} makes)"
            )
            problems.append((("segments", reader, "nodes"), message))
    return problems


def _circle(needs: Mapping[int, set[int]]) -> Sequence[int]:
    """Segments that need each other, or nothing when all can be put in an order."""
    left = {number: set(before) for number, before in needs.items()}
    while True:
        free = [number for number, before in left.items() if not before & left.keys()]
        if not free:
            break
        for number in free:
            del left[number]
    # What only reads from the circle is not part of it.
    while True:
        read = {before for befores in left.values() for before in befores}
        idle = [number for number in left if number not in read]
        if not idle:
            return sorted(left)
        for number in idle:
            del left[number]


def _nodes(nodes: Iterable[int]) -> str:
    """``node 3 is`` or ``nodes 3-5 are``."""
    listed = sorted(nodes)
    return f"node {listed[0]} is" if len(listed) == 1 else f"nodes {format_ids(listed)} are"


def _numbers(numbers: Sequence[int]) -> str:
    words = [str(number) for number in numbers]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
