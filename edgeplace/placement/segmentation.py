"""From a placement to a plan: neighbouring units on one platform become segments, in an order that always works.

Growing segments by "my neighbour is on the same platform" makes segments that need each other on real models. Here a
segment is grown by *scheduling*: take a platform, take in every unit of it that is ready, and again, until none is
left; that is one segment, and everything it needs has been done before. So plans are acyclic by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edgeplace.graph.bonds import CROSSING_TYPES
from edgeplace.graph.features import is_fed, replicas_for
from edgeplace.graph.graph import Graph, UnitGraph
from edgeplace.placement.plan import Placement, Plan, Segment, Source

_BEAM_WIDTH = 16
"""How many part-way schedules are followed. With two platforms there are never more than two that matter."""


def make_plan(unit_graph: UnitGraph, placement: Placement) -> Plan:
    """The plan of a placement: as few segments as the schedule search finds, the same ones every time.

    Raises:
        ValueError: The placement has not one platform per unit.
    """
    if len(placement.platforms) != len(unit_graph.units):
        raise ValueError(
            f"the placement has {len(placement.platforms)} platforms for {len(unit_graph.units)} units"
        )
    return plan_of_groups(unit_graph, schedule(unit_graph, placement))


def schedule(unit_graph: UnitGraph, placement: Placement) -> list[tuple[str, tuple[int, ...]]]:
    """Units in segments, in execution order: (platform, unit ids in unit order).

    The search goes level by level: every part-way schedule with one segment less is continued with each platform
    that has a ready unit, taking in all it can. Of schedules that have done the same units one is kept, and of all
    of them the 16 that have done the most multiply-accumulates.
    """
    units = len(unit_graph.units)
    everything = (1 << units) - 1
    needs = [sum(1 << before for before in unit_graph.predecessors[unit]) for unit in range(units)]
    work = [1 + sum(unit_graph.graph.nodes[node].macs for node in unit.nodes) for unit in unit_graph.units]
    states: dict[int, tuple[int, list[tuple[str, tuple[int, ...]]]]] = {0: (0, [])}
    while everything not in states:
        following: dict[int, tuple[int, list[tuple[str, tuple[int, ...]]]]] = {}
        for done, (finished_work, segments) in states.items():
            ready = [unit for unit in range(units) if not done >> unit & 1 and needs[unit] & ~done == 0]
            for platform in dict.fromkeys(placement.platforms[unit] for unit in ready):
                taken = _absorb(unit_graph, placement, platform, done, needs)
                after = done | sum(1 << unit for unit in taken)
                if after not in following:
                    total = finished_work + sum(work[unit] for unit in taken)
                    following[after] = (total, [*segments, (platform, taken)])
        best = sorted(following.items(), key=lambda item: -item[1][0])[:_BEAM_WIDTH]
        states = dict(best)
    return states[everything][1]


def _absorb(
    unit_graph: UnitGraph, placement: Placement, platform: str, done: int, needs: Sequence[int]
) -> tuple[int, ...]:
    """All units of a platform that can run now, one after the other. Units are numbered in a topological order."""
    taken: list[int] = []
    for unit in range(len(unit_graph.units)):
        if done >> unit & 1 or placement.platforms[unit] != platform or needs[unit] & ~done:
            continue
        taken.append(unit)
        done |= 1 << unit
    return tuple(taken)


def plan_of_groups(unit_graph: UnitGraph, groups: Sequence[tuple[str, Sequence[int]]]) -> Plan:
    """Wire groups of units, in this order, into a plan.

    Args:
        groups: (platform, unit ids); every unit once, and none before what it needs.

    Raises:
        ValueError: The groups are no such sequence.
    """
    graph = unit_graph.graph
    _check_groups(unit_graph, groups)
    position = {node: at for at, node in enumerate(graph.order)}
    node_lists = [
        tuple(
            sorted(
                (node for unit in units for node in unit_graph.units[unit].nodes), key=position.__getitem__
            )
        )
        for _, units in groups
    ]
    made_in = _makers(unit_graph, node_lists)
    read_in = [_reads(unit_graph, nodes) for nodes in node_lists]
    wanted = {
        tensor for number, reads in enumerate(read_in) for tensor in reads if made_in.get(tensor) != number
    }
    wanted |= set(graph.outputs)
    outputs = [
        _outputs(unit_graph, nodes, [tensor for tensor in wanted if made_in.get(tensor) == number])
        for number, nodes in enumerate(node_lists)
    ]
    segments = tuple(
        Segment(
            id=number,
            platform=platform,
            nodes=node_lists[number],
            units=tuple(sorted(units)),
            inputs=read_in[number],
            outputs=outputs[number],
            sources=tuple(_source(graph, tensor, made_in, outputs) for tensor in read_in[number]),
        )
        for number, (platform, units) in enumerate(groups)
    )
    return Plan(segments, tuple(_source(graph, tensor, made_in, outputs) for tensor in graph.outputs))


def lone_segment(unit_graph: UnitGraph, nodes: Iterable[int], platform: str = "") -> Segment:
    """Some nodes as a segment of its own, to try whether a platform takes them.

    Its inputs are what the nodes read from outside, its outputs what others (or the caller) read from them. It has
    no ``sources``: whoever runs it brings the inputs.
    """
    graph = unit_graph.graph
    position = {node: at for at, node in enumerate(graph.order)}
    ordered = tuple(sorted(set(nodes), key=position.__getitem__))
    inside = set(ordered) | replicas_for(graph, ordered, unit_graph.replicated)
    final = set(graph.outputs)
    leaving = [
        tensor
        for node in ordered
        for tensor in graph.nodes[node].outputs
        if tensor in final or any(reader not in inside for reader in graph.consumers.get(tensor, ()))
    ]
    return Segment(
        id=0,
        platform=platform,
        nodes=ordered,
        units=tuple(unit.id for unit in unit_graph.units if set(unit.nodes) <= set(ordered)),
        inputs=_reads(unit_graph, ordered),
        outputs=_outputs(unit_graph, ordered, leaving),
        sources=(),
    )


def _check_groups(unit_graph: UnitGraph, groups: Sequence[tuple[str, Sequence[int]]]) -> None:
    group_of = {unit: number for number, (_, units) in enumerate(groups) for unit in units}
    if sorted(unit for _, units in groups for unit in units) != list(range(len(unit_graph.units))):
        raise ValueError("the groups do not hold every unit once")
    for unit, before in enumerate(unit_graph.predecessors):
        if any(group_of[other] > group_of[unit] for other in before):
            raise ValueError(f"unit {unit} stands before what it needs")


def _makers(unit_graph: UnitGraph, node_lists: Sequence[Sequence[int]]) -> dict[int, int]:
    """Tensor -> the segment it is taken from.

    What a constant producer makes is wanted from outside only when the caller wants it: then the first segment that
    carries a copy gives it. A variable tensor is given by the segment that holds that state.
    """
    graph = unit_graph.graph
    made_in: dict[int, int] = {}
    for number, nodes in enumerate(node_lists):
        copies = replicas_for(graph, nodes, unit_graph.replicated)
        for node in (*copies, *nodes):
            for tensor in graph.nodes[node].outputs:
                made_in.setdefault(tensor, number)
            for tensor in graph.nodes[node].inputs:
                if tensor >= 0 and graph.tensors[tensor].is_variable and not is_fed(graph, tensor):
                    made_in.setdefault(tensor, number)
    return made_in


def _reads(unit_graph: UnitGraph, nodes: Sequence[int]) -> tuple[int, ...]:
    """Tensors the nodes need from outside: graph inputs in the caller's order, then others as they are read first."""
    graph = unit_graph.graph
    inside = {tensor for node in nodes for tensor in graph.nodes[node].outputs}
    read: dict[int, None] = {}
    for node in nodes:
        for tensor in graph.nodes[node].inputs:
            maker = graph.producer.get(tensor)
            if tensor in inside or maker in unit_graph.replicated:
                continue
            if maker is not None or is_fed(graph, tensor):
                read[tensor] = None
    fed = dict.fromkeys(tensor for tensor in graph.inputs if tensor in read)
    return (*fed, *(tensor for tensor in read if tensor not in fed))


def _outputs(unit_graph: UnitGraph, nodes: Sequence[int], wanted: Iterable[int]) -> tuple[int, ...]:
    """What a segment gives: graph outputs in the caller's order, then the rest as it is made.

    A segment nobody wants anything from (dead code) still gives one tensor, because runtimes ask for one.
    """
    graph = unit_graph.graph
    wanted = set(wanted)
    final = dict.fromkeys(tensor for tensor in graph.outputs if tensor in wanted)
    made = [tensor for node in nodes for tensor in graph.nodes[node].outputs if tensor >= 0]
    given = (*final, *(tensor for tensor in dict.fromkeys(made) if tensor in wanted and tensor not in final))
    if given:
        return given
    movable = [tensor for tensor in made if graph.tensors[tensor].dtype in CROSSING_TYPES]
    return tuple(movable[-1:])


def _source(
    graph: Graph, tensor: int, made_in: Mapping[int, int], outputs: Sequence[Sequence[int]]
) -> Source:
    """Where a tensor comes from."""
    if tensor in made_in:
        segment = made_in[tensor]
        return Source("segment", segment, outputs[segment].index(tensor))
    if is_fed(graph, tensor):
        return Source("input", graph.inputs.index(tensor))
    return Source("constant", tensor)
