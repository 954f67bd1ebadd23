"""What failed, kept apart from what was slow: which placements are not worth another try.

A failed run gives no time, so it never reaches the model of times. Two records are kept of it:

* a (segment, platform) pair that failed twice is *struck*: no placement whose plan holds it is tried again;
* what failed together, as sets of (unit, platform) pairs, and how often each pair ran. From these it is estimated how
  likely another placement runs. It is a group test: all of a set are suspected, those that ran elsewhere hardly, those
  that turn up in failure after failure more and more. And whatever holds all of a set that failed will most likely
  fail too, be it for an operator that is not supported or for a segment that is too large.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeplace.measure.measurement import Failure, Measurement
from edgeplace.placement.plan import Placement, Segment
from edgeplace.placement.segmentation import make_plan
from edgeplace.placement.space import PlacementSpace

STRIKES = 2
"""After how many failures a (segment, platform) pair is not tried again."""

NOT_ABOUT_THE_PLACEMENT = frozenset({"link_lost"})
"""Failures that say nothing about the placement that happened to run."""

_PRIOR = 0.1
"""How guilty a pair is taken to be at first, as a count of failures."""
_EXONERATION = 10.0
"""How many failures one run outweighs: a pair that ran is not broken, though a set that holds it may be."""
_ROUNDS = 5
"""Rounds of dealing each failure's guilt to its suspects by how guilty they look."""
_SAME_AGAIN = 0.1
"""How likely something runs that holds all of a set that failed."""


class Feasibility:
    """The record of failures of one search."""

    def __init__(self, space: PlacementSpace) -> None:
        self._unit_graph = space.unit_graph
        self._platform_index = {name: index for index, name in enumerate(space.platforms)}
        shape = (len(space.allowed), len(space.platforms))
        self._suspected: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
        self._ran = np.zeros(shape)
        self._failures: dict[tuple[str, tuple[int, ...]], int] = {}
        self._struck: set[tuple[str, tuple[int, ...]]] = set()

    def tell(self, placement: Placement, measurement: Measurement) -> None:
        """Take in whether a placement ran."""
        failure = measurement.failure
        if failure is None:
            for unit, name in enumerate(placement.platforms):
                self._ran[unit, self._platform_index[name]] += 1
        elif failure.kind not in NOT_ABOUT_THE_PLACEMENT:
            suspects = _suspects(failure, make_plan(self._unit_graph, placement).segments)
            units = [unit for segment in suspects for unit in segment.units]
            platforms = [self._platform_index[placement.platforms[unit]] for unit in units]
            self._suspected.append((np.array(units, dtype=np.intp), np.array(platforms, dtype=np.intp)))
            if len(suspects) == 1:
                self._strike(suspects[0])

    def allows(self, placement: Placement) -> bool:
        """False when the placement's plan holds a (segment, platform) pair that failed twice."""
        if not self._struck:
            return True
        segments = make_plan(self._unit_graph, placement).segments
        return not any((segment.platform, segment.units) in self._struck for segment in segments)

    def probability(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """How likely placements run: 1 where nothing speaks against it.

        Args:
            rows: Shape (placements, units): number of each unit's platform in ``space.platforms``.

        Returns:
            Shape (placements,), each in (0, 1].
        """
        innocent = 1.0 - self._guilt()
        runs = np.asarray(innocent[np.arange(innocent.shape[0]), rows].prod(axis=1))
        for units, platforms in self._suspected:
            runs[(rows[:, units] == platforms).all(axis=1)] *= _SAME_AGAIN
        return np.maximum(runs, 1e-6)

    def _guilt(self) -> NDArray[np.float64]:
        """How likely each (unit, platform) pair makes whatever holds it fail; 0 where nothing speaks against it."""
        involved = np.zeros_like(self._ran)
        for suspects in self._suspected:
            involved[suspects] += 1.0
        trials = 1.0 + involved + _EXONERATION * self._ran
        guilt = _PRIOR / trials
        for _ in range(_ROUNDS):
            dealt = np.zeros_like(guilt)
            for suspects in self._suspected:
                dealt[suspects] += guilt[suspects] / guilt[suspects].sum()
            guilt = (_PRIOR + dealt) / trials
        return np.where(involved > 0, guilt, 0.0)

    def _strike(self, segment: Segment) -> None:
        key = (segment.platform, segment.units)
        self._failures[key] = self._failures.get(key, 0) + 1
        if self._failures[key] >= STRIKES:
            self._struck.add(key)


def _suspects(failure: Failure, segments: Sequence[Segment]) -> list[Segment]:
    """The segments the failure may have come from: the one it names, else all of the platform it names, else all."""
    if failure.segment is not None and 0 <= failure.segment < len(segments):
        return [segments[failure.segment]]
    named = [segment for segment in segments if segment.platform == failure.platform]
    return named or list(segments)
