"""The fastest placement of an additive model, by dynamic programming over the units in topological order.

A state is what the units still to come can see of those already placed: the platform of every unit that somebody
still reads, and the platforms its tensors have been handed to. Of two partial placements with one state only the
cheaper can be part of the optimum, so on a chain this is the classic shortest path through (unit, platform) pairs.
On a graph with branches it stays exact while the states fit into ``max_states``; beyond that the dearest states are
dropped (a beam) and the answer is a good placement that may not be the best. The result says which of the two it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgeplace.optimizers.additive import AdditiveCosts, Wiring
from edgeplace.placement.plan import Placement

MAX_STATES = 1024


@dataclass(frozen=True, slots=True)
class ShortestPath:
    """The placement, its time by the additive model, and whether no other placement is faster by that model."""

    placement: Placement
    cost_ms: float
    exact: bool


_State = tuple[tuple[int, ...], tuple[int, ...]]
"""Platform of every live unit, and for every live tensor a bit mask of the platforms it was handed to."""
_Trail = tuple[int, "_Trail | None"]
"""Platform of the last unit, and the trail before it."""


def shortest_path(wiring: Wiring, costs: AdditiveCosts, *, max_states: int = MAX_STATES) -> ShortestPath:
    """The fastest placement by the additive model.

    Args:
        max_states: How many partial placements are kept after each unit.
    """
    steps = _steps(wiring)
    unit_ms, fixed_ms = costs.unit_ms.tolist(), costs.fixed_ms.tolist()
    ms_per_byte, together_ms = costs.ms_per_byte.tolist(), costs.together_ms.tolist()
    front: dict[_State, tuple[float, _Trail | None]] = {((), ()): (0.0, None)}
    exact = True
    for unit, step in enumerate(steps):
        following: dict[_State, tuple[float, _Trail | None]] = {}
        for (placed, handed), (cost, trail) in front.items():
            for platform in wiring.choices[unit]:
                total = cost + unit_ms[unit][platform]
                masks = list(handed)
                for tensor, producer, size_bytes in step.reads:
                    start = placed[producer]
                    if start != platform and not masks[tensor] >> platform & 1:
                        total += fixed_ms[start][platform] + size_bytes * ms_per_byte[start][platform]
                        masks[tensor] |= 1 << platform
                for edge, producer in step.edges:
                    if placed[producer] == platform:
                        total += together_ms[edge][platform]
                now_placed, now_handed = (*placed, platform), (*masks, *(0,) * step.makes)
                state = (
                    tuple(now_placed[slot] for slot in step.kept_units),
                    tuple(now_handed[slot] for slot in step.kept_tensors),
                )
                if state not in following or total < following[state][0]:
                    following[state] = (total, (platform, trail))
        if len(following) > max_states:
            exact = False
            cheapest = sorted(following.items(), key=lambda item: (item[1][0], item[0]))
            following = dict(cheapest[:max_states])
        front = following
    cost, trail = min(front.values(), key=lambda item: item[0])
    return ShortestPath(wiring.placement(_unwind(trail)), cost, exact)


def fastest_per_unit(wiring: Wiring, costs: AdditiveCosts) -> Placement:
    """Each unit where it alone is fastest, hand-overs ignored."""
    return wiring.placement(np.where(wiring.allowed, costs.unit_ms, np.inf).argmin(axis=1))


@dataclass(frozen=True, slots=True)
class _Step:
    """What placing one unit reads and leaves behind; positions are slots of the state before it.

    Attributes:
        reads: (slot of a live tensor, slot of the unit that made it, its bytes).
        edges: (number of the edge, slot of the unit at its other end).
        makes: How many tensors the unit makes for others.
        kept_units: Slots that stay, the new unit being the last slot.
        kept_tensors: The same for tensors, the new ones being the last slots.
    """

    reads: tuple[tuple[int, int, int], ...]
    edges: tuple[tuple[int, int], ...]
    makes: int
    kept_units: tuple[int, ...]
    kept_tensors: tuple[int, ...]


def _steps(wiring: Wiring) -> list[_Step]:
    live_units: list[int] = []
    live_tensors: list[int] = []
    steps: list[_Step] = []
    for unit in range(wiring.units):
        reads = tuple(
            (slot, live_units.index(wiring.carried[tensor].producer), wiring.carried[tensor].size_bytes)
            for slot, tensor in enumerate(live_tensors)
            if unit in wiring.carried[tensor].consumers
        )
        edges = tuple(
            (edge, live_units.index(start)) for edge, (start, end) in enumerate(wiring.edges) if end == unit
        )
        made = [tensor for tensor, item in enumerate(wiring.carried) if item.producer == unit]
        all_units, all_tensors = [*live_units, unit], [*live_tensors, *made]
        kept_tensors = [
            slot for slot, tensor in enumerate(all_tensors) if wiring.carried[tensor].consumers[-1] > unit
        ]
        live_tensors = [all_tensors[slot] for slot in kept_tensors]
        needed = {wiring.carried[tensor].producer for tensor in live_tensors}
        kept_units = [slot for slot, live in enumerate(all_units) if live in needed]
        live_units = [all_units[slot] for slot in kept_units]
        steps.append(_Step(reads, edges, len(made), tuple(kept_units), tuple(kept_tensors)))
    return steps


def _unwind(trail: _Trail | None) -> list[int]:
    platforms: list[int] = []
    while trail is not None:
        platform, trail = trail
        platforms.append(platform)
    return platforms[::-1]
