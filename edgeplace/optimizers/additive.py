"""The additive model of a placement's time: units one by one, and the hand-overs between them.

Time = sum over units of their time on their platform + sum over tensors of one hand-over to every other platform on
which somebody reads them. It knows nothing of what neighbours do to each other (fused kernels, caches, launches), so
it is a starting point and a yardstick, never an answer.

Placements are rows of integers here: one row per placement, in it the number of each unit's platform in
``space.platforms``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from edgeplace.optimizers.base import SearchHints
from edgeplace.placement.plan import Placement
from edgeplace.placement.space import PlacementSpace

Rows: TypeAlias = NDArray[np.intp]
"""Placements as integers, shape (placements, units)."""
Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Carried:
    """A tensor that one unit makes and others read."""

    producer: int
    consumers: tuple[int, ...]
    size_bytes: int


class Wiring:
    """A placement space in numbers: which platforms units may go to, and what is carried between units.

    Attributes:
        platforms: Names of the platforms, their position is their number.
        allowed: Shape (units, platforms): may the unit go there.
        choices: For each unit the numbers of the platforms it may go to.
        carried: Tensors that cross from one unit to others, in order of their number.
        edges: Pairs of units with a tensor between them, each once, in order.
    """

    def __init__(self, space: PlacementSpace) -> None:
        self.space = space
        self.platforms = space.platforms
        self._number = {name: number for number, name in enumerate(self.platforms)}
        self.choices = tuple(tuple(self._number[name] for name in names) for names in space.allowed)
        self.allowed: NDArray[np.bool_] = np.zeros((len(self.choices), len(self.platforms)), dtype=bool)
        for unit, numbers in enumerate(self.choices):
            self.allowed[unit, list(numbers)] = True
        self.carried = _carried(space)
        self.edges = tuple(
            sorted({(item.producer, consumer) for item in self.carried for consumer in item.consumers})
        )
        plain = [item for item in self.carried if len(item.consumers) == 1]
        self._forked = tuple(item for item in self.carried if len(item.consumers) > 1)
        self._plain_from = np.array([item.producer for item in plain], dtype=np.intp)
        self._plain_to = np.array([item.consumers[0] for item in plain], dtype=np.intp)
        self._plain_bytes = np.array([item.size_bytes for item in plain], dtype=np.float64)

    @property
    def units(self) -> int:
        """Number of units."""
        return len(self.choices)

    def rows(self, placements: Sequence[Placement]) -> Rows:
        """The placements as integers."""
        numbers = [[self._number[name] for name in placement.platforms] for placement in placements]
        return np.array(numbers, dtype=np.intp).reshape(len(numbers), self.units)

    def placement(self, row: Sequence[int] | Rows) -> Placement:
        """The placement a row stands for."""
        return Placement(tuple(self.platforms[int(number)] for number in row))

    def handovers(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """Hand-overs by (from platform, to platform).

        Returns:
            Their count and their bytes, each of shape (placements, platforms, platforms), zero on the diagonal.
        """
        width = len(self.platforms)
        counts = np.zeros((len(rows), width, width))
        sizes = np.zeros_like(counts)
        starts, ends = rows[:, self._plain_from], rows[:, self._plain_to]
        for start in range(width):
            for end in range(width):
                if start != end:
                    crosses = (starts == start) & (ends == end)
                    counts[:, start, end] = crosses.sum(axis=1)
                    sizes[:, start, end] = crosses @ self._plain_bytes
        every = np.arange(len(rows))
        for item in self._forked:
            begin = rows[:, item.producer]
            readers = rows[:, list(item.consumers)]
            for end in range(width):
                crosses = (readers == end).any(axis=1) & (begin != end)
                counts[every, begin, end] += crosses
                sizes[every, begin, end] += crosses * float(item.size_bytes)
        return counts, sizes


@dataclass(frozen=True)
class AdditiveCosts:
    """The numbers of an additive model.

    Attributes:
        unit_ms: Shape (units, platforms).
        fixed_ms: Shape (platforms, platforms): cost of any hand-over.
        ms_per_byte: Shape (platforms, platforms).
        together_ms: Shape (edges, platforms): what it adds (or saves, when negative) to have both ends of an edge
            on that platform; zero where nothing is known.
    """

    unit_ms: Numbers
    fixed_ms: Numbers
    ms_per_byte: Numbers
    together_ms: Numbers

    def predict_ms(self, wiring: Wiring, rows: Rows) -> Numbers:
        """Total time of each placement, shape (placements,)."""
        counts, sizes = wiring.handovers(rows)
        total = self.unit_ms[np.arange(wiring.units), rows].sum(axis=1)
        total = total + (counts * self.fixed_ms + sizes * self.ms_per_byte).sum(axis=(1, 2))
        for edge, (start, end) in enumerate(wiring.edges):
            same = rows[:, start] == rows[:, end]
            total = total + np.where(same, self.together_ms[edge, rows[:, start]], 0.0)
        return np.asarray(total)


def hinted_costs(wiring: Wiring, hints: SearchHints) -> AdditiveCosts | None:
    """The additive model of what was measured before the search; ``None`` when no unit was timed.

    A unit not timed on a platform counts as its slowest time elsewhere, a unit timed nowhere as free everywhere; a
    hand-over not measured counts as the mean of those that were, or as free when there are none.
    """
    known = np.full(wiring.allowed.shape, np.nan)
    for unit, numbers in enumerate(wiring.choices):
        for number in numbers:
            known[unit, number] = hints.unit_times_ms.get((unit, wiring.platforms[number]), np.nan)
    if np.isnan(known).all():
        return None
    slowest = np.nan_to_num(np.nanmax(np.where(np.isnan(known), -np.inf, known), axis=1), neginf=0.0)
    width = len(wiring.platforms)
    fixed, per_byte = handover_arrays(wiring.platforms, hints.handover_ms)
    return AdditiveCosts(
        unit_ms=np.where(np.isnan(known), slowest[:, None], known),
        fixed_ms=fixed,
        ms_per_byte=per_byte,
        together_ms=np.zeros((len(wiring.edges), width)),
    )


def handover_arrays(
    platforms: Sequence[str], handover_ms: Mapping[tuple[str, str], tuple[float, float]]
) -> tuple[Numbers, Numbers]:
    """Fixed ms and ms per byte of a hand-over, each of shape (platforms, platforms), zero on the diagonal."""
    width = len(platforms)
    known = [
        handover_ms[start, end]
        for start in platforms
        for end in platforms
        if start != end and (start, end) in handover_ms
    ]
    usual = tuple(np.mean(known, axis=0)) if known else (0.0, 0.0)
    fixed, per_byte = np.zeros((width, width)), np.zeros((width, width))
    for i, start in enumerate(platforms):
        for j, end in enumerate(platforms):
            if start != end:
                fixed[i, j], per_byte[i, j] = handover_ms.get((start, end), usual)
    return fixed, per_byte


def _carried(space: PlacementSpace) -> tuple[Carried, ...]:
    graph = space.unit_graph.graph
    unit_of = {node: unit.id for unit in space.unit_graph.units for node in unit.nodes}
    found: list[Carried] = []
    for tensor, node in sorted(graph.producer.items()):
        producer = unit_of.get(node)  # none for replicated constant producers: each reader has its own copy
        if producer is None:
            continue
        readers = {unit_of[reader] for reader in graph.consumers.get(tensor, ()) if reader in unit_of}
        consumers = tuple(sorted(readers - {producer}))
        if consumers:
            found.append(Carried(producer, consumers, graph.tensors[tensor].size_bytes))
    return tuple(found)
