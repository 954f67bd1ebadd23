"""A placement as a row of numbers for the boosted trees: what could make it faster or slower than the sum of its parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeplace.optimizers.additive import AdditiveCosts, Numbers, Rows, Wiring


class FeatureMap:
    """Makes feature rows of one space; all of it works on whole batches of placements.

    The columns, in order: for every unit with a choice, one per allowed platform (1 where it is there); hand-overs
    and their bytes for every ordered pair of platforms; the number of connected groups of one platform; the
    units of the largest one; for every platform its units' time alone and its units; the additive prediction.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        choices = [(u, p) for u, numbers in enumerate(wiring.choices) for p in numbers if len(numbers) > 1]
        self._choice_units = np.array([unit for unit, _ in choices], dtype=np.intp)
        self._choice_platforms = np.array([platform for _, platform in choices], dtype=np.intp)
        width = len(wiring.platforms)
        self._pairs = np.flatnonzero(~np.eye(width, dtype=bool))

    def rows(self, placements: Rows, costs: AdditiveCosts) -> Numbers:
        """Feature rows, shape (placements, features).

        Args:
            placements: Shape (placements, units).
            costs: The additive model in force; times are its times.
        """
        count, units = placements.shape
        width = len(self._wiring.platforms)
        counts, sizes = self._wiring.handovers(placements)
        groups, largest = self._groups(placements)
        times = costs.unit_ms[np.arange(units), placements]
        on_platform = placements[:, :, None] == np.arange(width)
        columns = [
            placements[:, self._choice_units] == self._choice_platforms,
            counts.reshape(count, -1)[:, self._pairs],
            sizes.reshape(count, -1)[:, self._pairs],
            groups[:, None],
            largest[:, None],
            (times[:, :, None] * on_platform).sum(axis=1),
            on_platform.sum(axis=1),
            costs.predict_ms(self._wiring, placements)[:, None],
        ]
        return np.concatenate([np.asarray(column, dtype=np.float64) for column in columns], axis=1)

    def _groups(self, placements: Rows) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Connected groups of one platform (segments before cycles are cut): how many, and units of the largest."""
        count, units = placements.shape
        labels = np.tile(np.arange(units), (count, 1))
        same = [(s, e, placements[:, s] == placements[:, e]) for s, e in self._wiring.edges]
        while True:
            before = labels.copy()
            for start, end, joined in (*same, *reversed(same)):
                lowest = np.minimum(labels[:, start], labels[:, end])
                labels[:, start] = np.where(joined, lowest, labels[:, start])
                labels[:, end] = np.where(joined, lowest, labels[:, end])
            if np.array_equal(before, labels):
                break
        sizes = np.zeros((count, units), dtype=np.intp)
        np.add.at(sizes, (np.arange(count)[:, None], labels), 1)
        return (sizes > 0).sum(axis=1), sizes.max(axis=1)
