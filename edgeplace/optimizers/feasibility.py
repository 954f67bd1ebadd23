"""What failed, kept apart from what was slow: which placements are not worth another try.

A failed run gives no time, so it never reaches the model of times. Two records are kept of it:

* a (segment, platform) pair that failed twice is *struck*: no placement whose plan holds it is tried again;
* for every (unit, platform) pair, how often it was part of something that failed and of something that ran. The
  least trusted pair of a placement says how likely the placement runs: a simple group test, in which the units that
  failed together are all suspected until some of them are seen running elsewhere.
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


class Feasibility:
    """The record of failures of one search."""

    def __init__(self, space: PlacementSpace) -> None:
        self._unit_graph = space.unit_graph
        self._platform_index = {name: index for index, name in enumerate(space.platforms)}
        shape = (len(space.allowed), len(space.platforms))
        self._failed = np.zeros(shape)
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
            for segment in suspects:
                self._failed[list(segment.units), self._platform_index[segment.platform]] += 1
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
        # Laplace's rule, without its doubt where there was no failure at all.
        pair = (self._ran + 1.0) / (self._ran + self._failed + 1.0)
        return np.asarray(pair[np.arange(pair.shape[0]), rows].min(axis=1))

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
