"""From nodes to units: what stays together because it must, and what because separating it cannot pay.

* ``op``: every node is a unit, but for what must stay together.
* ``unit``: also merges what no platform boundary can profit from: element-wise and data-moving operators with their
  neighbours, and anything too light to pay for a hand-over.
* ``block``: cuts only at the narrow points of the graph, into a dozen units at most.

Every merge keeps the units acyclic, and where there is a choice it removes the border over which most bytes go.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal

from edgeplace.graph.bonds import CROSSING_TYPES
from edgeplace.graph.graph import Bond, Graph, Unit, UnitGraph
from edgeplace.graph.groups import Groups, topological
from edgeplace.graph.ops import CONTROL_FLOW_OPS, CUSTOM_OPS, FUSED_OPS, GLUE_OPS, HOST_OPS

Granularity = Literal["op", "unit", "block"]

LIGHT_SHARE = 1 / 32
"""A unit or block with less than this share of the graph's work is merged into a neighbour."""
MAX_BLOCKS = 12
MIN_BLOCKS = 3
"""Down to this many, light blocks are merged; up to it, cuts where more than one tensor crosses are allowed too."""

_QUANTIZED_TYPES = frozenset({"int8", "uint8", "int16", "int4", "uint4", "int2"})
_FLOAT_TYPES = frozenset({"float32", "float16", "float64", "bfloat16", "complex64", "complex128"})


def contract(graph: Graph, granularity: Granularity) -> UnitGraph:
    """Contract a graph to units.

    Raises:
        ValueError: There is no such granularity.
    """
    if granularity not in ("op", "unit", "block"):
        raise ValueError(f"'{granularity}' is no granularity")
    groups, bonds = _bonded_groups(graph)
    reasons = _reasons(groups, bonds)
    if granularity == "unit":
        _merge_light(groups, LIGHT_SHARE)
    if granularity == "block":
        _merge_light(groups, 0)
    parts = [groups.members[group] for group in groups.in_order()]
    if granularity == "block":
        parts = _blocks(groups, parts)
    return _unit_graph(graph, granularity, parts, reasons)


def atoms(unit_graph: UnitGraph, unit: int) -> tuple[tuple[int, ...], ...]:
    """The smallest parts a unit may be split into, in execution order: what is bonded stays whole."""
    groups, _ = _bonded_groups(unit_graph.graph)
    inside = set(unit_graph.units[unit].nodes)
    return tuple(
        tuple(groups.members[group]) for group in groups.in_order() if groups.members[group][0] in inside
    )


def split_unit(unit_graph: UnitGraph, unit: int, parts: Sequence[Sequence[int]]) -> UnitGraph:
    """The unit graph with one unit replaced by several, for when a platform takes only some of its nodes.

    Units are numbered anew; ``granularity`` stays what it was.

    Args:
        parts: The unit's nodes in groups. Each atom (see :func:`atoms`) is in one group, and no two units of the
            result need each other.

    Raises:
        ValueError: The parts are no such partition.
    """
    graph = unit_graph.graph
    whole = unit_graph.units[unit].nodes
    if sorted(node for part in parts for node in part) != sorted(whole) or not all(parts):
        raise ValueError(f"the parts are no partition of the nodes of unit {unit}")
    part_of = {node: number for number, part in enumerate(parts) for node in part}
    for atom in atoms(unit_graph, unit):
        if len({part_of[node] for node in atom}) > 1:
            raise ValueError(f"nodes {format_ids(atom)} must stay together")
    kept = [other.nodes for other in unit_graph.units if other.id != unit]
    reasons = _reasons(*_bonded_groups(graph))
    return _unit_graph(graph, unit_graph.granularity, [*kept, *parts], reasons)


def format_ids(ids: Iterable[int]) -> str:
    """Node ids for people: ``0-3, 7``."""
    runs: list[list[int]] = []
    for number in sorted(ids):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _bonded_groups(graph: Graph) -> tuple[Groups, tuple[Bond, ...]]:
    """The groups of nodes that must stay together, closed over the paths between them, and all bonds behind them."""
    groups = Groups(graph, graph.constant_nodes, [bond.nodes for bond in graph.bonds])
    bonds = list(graph.bonds)
    for group in sorted(groups.members):
        if group in groups.members and not _exports(graph, groups.members[group]):
            bonds += _join_silent(groups, group)
    return groups, tuple(bonds)


def _exports(graph: Graph, nodes: Iterable[int]) -> bool:
    """Whether the nodes make a tensor that can leave a segment; runtimes want at least one from each."""
    return any(
        graph.tensors[tensor].dtype in CROSSING_TYPES
        for node in nodes
        for tensor in graph.nodes[node].outputs
        if tensor >= 0
    )


def _join_silent(groups: Groups, silent: int) -> list[Bond]:
    """Join a group that exports nothing to what feeds it last, or, when nothing does, to the group before it.

    Nobody reads such a group, and nothing leads from its last feeder to another feeder, so no circle can arise.
    """
    order = groups.in_order()
    partners = [group for group in order if group in groups.before[silent]]
    if not partners:
        # Without feeders and readers it may go anywhere.
        others = [group for group in order if group != silent]
        partners = [group for group in others if group < silent][-1:] or others[:1]
    if not partners:
        return []
    nodes = (groups.members[partners[-1]][-1], *groups.members[silent])
    groups.merge(silent, partners[-1])
    ordered = tuple(sorted(nodes, key=groups.position.__getitem__))
    return [Bond(ordered, "an operator that gives nothing to others stays with what feeds it")]


def _reasons(groups: Groups, bonds: Sequence[Bond]) -> Mapping[int, tuple[str, ...]]:
    """First node of each bonded group -> why its nodes must stay together."""
    first_of = {node: members[0] for members in groups.members.values() for node in members}
    texts: dict[int, dict[str, None]] = {}
    held: dict[int, set[int]] = {}
    for bond in bonds:
        present = [node for node in bond.nodes if node in first_of]
        if len(present) > 1:
            texts.setdefault(first_of[present[0]], {})[bond.reason] = None
            held.setdefault(first_of[present[0]], set()).update(present)
    for members in groups.members.values():
        between = set(members) - held.get(members[0], set())
        if len(members) > 1 and between:
            texts[members[0]][f"on a path between nodes that stay together: {format_ids(between)}"] = None
    return {first: tuple(reasons) for first, reasons in texts.items()}


def _merge_light(groups: Groups, share: float) -> None:
    """Merge what cannot pay for a hand-over into its neighbours, in rounds, until nothing is left to merge.

    First, in a graph that has multiply-accumulates at all, what only moves or maps elements goes with the neighbour
    over whose border most bytes go. Then every group with less than ``share`` of the work is merged, the lightest
    first, with a neighbour that is light itself when there is one. A light group takes in one other per round, so
    that groups grow evenly and not into one.
    """
    graph = groups.graph
    work = {group: _work(graph, members) for group, members in groups.members.items()}
    light = sum(work.values()) * share
    heavy = {group for group, effort in work.items() if effort >= light}
    has_macs = any(graph.nodes[node].macs for members in groups.members.values() for node in members)
    merged = True
    while merged:
        merged = False
        grown: set[int] = set()
        for group in sorted(groups.members, key=lambda name: (work[name], name)):
            if group not in groups.members:
                continue
            if has_macs and _is_cheap(graph, groups.members[group]):
                partner = _best_partner(groups, group)
            elif group not in heavy and group not in grown:
                partner = _best_partner(groups, group, heavy)
                if partner in grown and partner not in heavy:
                    continue  # in the next round
            else:
                continue
            if partner is not None:
                total = work.pop(group) + work.pop(partner)
                heavy -= {group, partner}
                name = groups.merge(group, partner)
                work[name] = total
                grown.add(name)
                if total >= light:
                    heavy.add(name)
                merged = True


def _best_partner(groups: Groups, group: int, avoid: Container[int] = ()) -> int | None:
    """The neighbour over whose border most bytes go; of equals the latest maker, then the earliest reader.

    Args:
        avoid: Neighbours that come after all others.
    """
    graph = groups.graph
    kind = _kind(graph, groups.members[group])
    makers = [(-groups.edge_bytes(maker, group), 0, -maker, maker) for maker in groups.before[group]]
    readers = [(-groups.edge_bytes(group, reader), 1, reader, reader) for reader in groups.after[group]]
    for *_, other in sorted(makers + readers, key=lambda choice: (choice[-1] in avoid, choice)):
        if _fit(kind, _kind(graph, groups.members[other])) and groups.may_merge(group, other):
            return other
    return None


def _work(graph: Graph, nodes: Iterable[int]) -> int:
    """A rough measure of effort: moving a byte counts as one multiply-accumulate."""
    return sum(graph.nodes[node].macs + graph.nodes[node].activation_bytes for node in nodes)


def _is_cheap(graph: Graph, nodes: Iterable[int]) -> bool:
    return all(graph.nodes[node].op_type in GLUE_OPS | FUSED_OPS for node in nodes)


def _fit(one: str, other: str) -> bool:
    """Whether no platform is likely to want just one of the two kinds. Unknown code and control flow stay alone."""
    if "alone" in (one, other):
        return False
    return one == other or "any" in (one, other)


def _kind(graph: Graph, nodes: Iterable[int]) -> str:
    """What sort of platform wants these nodes: ``alone``, ``host``, ``float``, ``quantized``, or ``any``."""
    kinds = {_node_kind(graph, node) for node in nodes} - {"any"}
    for kind in ("alone", "host", "float", "quantized"):
        if kind in kinds:
            return kind
    return "any"


def _node_kind(graph: Graph, node: int) -> str:
    op_type = graph.nodes[node].op_type
    if op_type in CUSTOM_OPS or op_type in CONTROL_FLOW_OPS:
        return "alone"
    if op_type in GLUE_OPS:
        return "any"
    types = {graph.tensors[tensor].dtype for tensor in graph.nodes[node].outputs if tensor >= 0}
    if op_type in HOST_OPS or not types & (_FLOAT_TYPES | _QUANTIZED_TYPES):
        return "host"
    return "quantized" if types & _QUANTIZED_TYPES else "float"


def _blocks(groups: Groups, parts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Runs of consecutive units, cut where few tensors cross; consecutive parts of a topological order are acyclic."""
    widths = _crossing_tensors(groups.graph, parts)
    allowed: list[int] = []
    for width in sorted(set(widths)):
        allowed = [at for at, crossing in enumerate(widths, start=1) if crossing <= width]
        if len(allowed) + 1 >= MIN_BLOCKS:
            break
    starts = [0, *allowed]
    ends = [*allowed, len(parts)]
    blocks = [
        [node for part in parts[start:end] for node in part] for start, end in zip(starts, ends, strict=True)
    ]
    blocks = [block for block in blocks if block]
    work = [_work(groups.graph, block) for block in blocks]
    total = sum(work)
    while len(blocks) > MAX_BLOCKS or (len(blocks) > MIN_BLOCKS and min(work) < total * LIGHT_SHARE):
        lightest = min(range(len(blocks)), key=work.__getitem__)
        neighbours = [at for at in (lightest - 1, lightest + 1) if 0 <= at < len(blocks)]
        first = min(lightest, min(neighbours, key=work.__getitem__))
        blocks[first : first + 2] = [blocks[first] + blocks[first + 1]]
        work[first : first + 2] = [work[first] + work[first + 1]]
    return blocks


def _crossing_tensors(graph: Graph, parts: Sequence[Sequence[int]]) -> list[int]:
    """For each place between two neighbouring parts, how many tensors made before it are read after it."""
    part_of = {node: number for number, part in enumerate(parts) for node in part}
    change = [0] * (len(parts) + 1)
    for tensor, maker in graph.producer.items():
        readers = [part_of[reader] for reader in graph.consumers.get(tensor, ()) if reader in part_of]
        if maker in part_of and readers and max(readers) > part_of[maker]:
            change[part_of[maker]] += 1
            change[max(readers)] -= 1
    widths: list[int] = []
    live = 0
    for place in range(len(parts) - 1):
        live += change[place]
        widths.append(live)
    return widths


def _unit_graph(
    graph: Graph, granularity: str, parts: Sequence[Sequence[int]], reasons: Mapping[int, tuple[str, ...]]
) -> UnitGraph:
    """Units over these parts, numbered in a topological order.

    Raises:
        ValueError: Two parts need each other.
    """
    position = {node: at for at, node in enumerate(graph.order)}
    by_first = {
        min(position[node] for node in part): sorted(part, key=position.__getitem__) for part in parts
    }
    part_of = {node: first for first, part in by_first.items() for node in part}
    after: dict[int, set[int]] = {first: set() for first in by_first}
    for tensor, maker in graph.producer.items():
        for reader in graph.consumers.get(tensor, ()):
            if maker in part_of and reader in part_of and part_of[maker] != part_of[reader]:
                after[part_of[maker]].add(part_of[reader])
    order = topological(by_first, {first: sorted(targets) for first, targets in after.items()})
    number = {first: unit for unit, first in enumerate(order)}
    successors = [tuple(sorted(number[target] for target in after[first])) for first in order]
    predecessors: list[list[int]] = [[] for _ in order]
    for unit, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(unit)
    return UnitGraph(
        graph=graph,
        granularity=granularity,
        units=tuple(
            Unit(
                id=number[first],
                nodes=tuple(by_first[first]),
                name=_unit_name(graph, by_first[first]),
                bonds=tuple(
                    dict.fromkeys(text for node in by_first[first] for text in reasons.get(node, ()))
                ),
            )
            for first in order
        ),
        replicated=graph.constant_nodes,
        successors=tuple(successors),
        predecessors=tuple(tuple(units) for units in predecessors),
    )


_MAX_NAME_LENGTH = 40


def _unit_name(graph: Graph, nodes: Sequence[int]) -> str:
    """``CONV_2D..ADD`` for several nodes; the end of its name for a single one."""
    first, last = graph.nodes[nodes[0]], graph.nodes[nodes[-1]]
    if first is not last:
        return f"{first.custom_code or first.op_type}..{last.custom_code or last.op_type}"
    # Converters join the names of what they fused by ';', each a path of scopes.
    parts = [part for part in first.name.split(";")[0].split("/") if part]
    name = "/".join(parts[-2:])
    if not name:
        return first.custom_code or first.op_type
    return name if len(name) <= _MAX_NAME_LENGTH else "..." + name[3 - _MAX_NAME_LENGTH :]
