"""The additive model, corrected by what whole placements were measured at.

Unit times measured alone are a prior, not the truth: inside a placement units run fused, with other caches, after
other hand-overs. Bayesian linear regression moves unit times, hand-over costs and the gain of neighbours from that
prior just as far as the measured totals (and the share of each segment, where it is known) ask for. What comes out is again an additive model, so the shortest path
through it (and through draws from its posterior) proposes placements that a walk by single flips would not reach.

The gradient-boosted surrogate learns what this model leaves over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeplace.optimizers.additive import AdditiveCosts, Numbers, Rows, Wiring, handover_arrays, hinted_costs
from edgeplace.optimizers.base import SearchHints

NOISE_SHARE = 0.02
"""Standard deviation taken for a measured total, as a share of it; what is stated for a stopped measurement."""
_TRUST_HINTED = 0.3
"""Prior standard deviation of a unit time that was measured alone, as a share of it."""
_TRUST_GUESSED = 1.0
"""The same for one that was not."""
_NEIGHBOURS = 0.3
"""Prior standard deviation of what neighbours on one platform gain, as a share of the faster one's time."""


@dataclass(frozen=True, slots=True)
class SegmentTime:
    """What a segment took inside measured placements.

    Attributes:
        platform: Number of its platform.
        sample: The only measured placement (its row) it was seen in, ``None`` when it was seen in several.
    """

    units: tuple[int, ...]
    platform: int
    ms: float
    sample: int | None


@dataclass(frozen=True)
class Calibrated:
    """The posterior of the additive model's numbers.

    Attributes:
        costs: Posterior mean.
        left_out_ms: For each measured placement what the model says of it when it alone is left out; honest where
            the model's own fit would be flattering.
    """

    costs: AdditiveCosts
    left_out_ms: Numbers
    _calibration: Calibration
    _design: Numbers
    _residual_ms: Numbers
    _noise_ms: Numbers
    _inverse: Numbers

    def predict(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """Mean and standard deviation of the total time in ms, each of shape (placements,)."""
        design = self._calibration.design(rows)
        mean = design @ self._calibration.flat(self.costs)
        scaled = design * self._calibration.spread
        known = scaled @ (self._design * self._calibration.spread).T
        variance = (scaled**2).sum(axis=1) - ((known @ self._inverse) * known).sum(axis=1)
        return np.maximum(mean, self._calibration.least_ms), np.sqrt(np.maximum(variance, 0.0))

    def draw(self, chance: np.random.Generator) -> AdditiveCosts:
        """One draw from the posterior (a draw from the prior, moved onto the measurements: Matheron's rule)."""
        calibration = self._calibration
        prior = calibration.spread * chance.standard_normal(len(calibration.spread))
        noise_ms = self._noise_ms * chance.standard_normal(len(self._noise_ms))
        gap_ms = self._residual_ms - self._design @ prior - noise_ms
        moved = calibration.spread**2 * (self._design.T @ (self._inverse @ gap_ms))
        return calibration.costs(calibration.mean + prior + moved)


class Calibration:
    """The prior: numbers from the hints where there are any, and how far to trust them.

    Args:
        usual_ms: What a placement takes, roughly; used where there are no hints.

    Attributes:
        prior: The additive model before any placement was measured.
        least_ms: No prediction is below this.
    """

    def __init__(self, wiring: Wiring, hints: SearchHints, usual_ms: float) -> None:
        self.wiring = wiring
        self._width = len(wiring.platforms)
        hinted = hinted_costs(wiring, hints)
        if hinted is None:
            costs, trust = _guessed_costs(wiring, hints, usual_ms), _TRUST_GUESSED
        else:
            costs, trust = hinted, _TRUST_HINTED
        typical_ms = float(np.median(costs.unit_ms[wiring.allowed]))
        self.least_ms = 1e-3 * max(typical_ms, 1e-6)
        typical_bytes = float(np.mean([item.size_bytes for item in wiring.carried] or [1])) or 1.0
        other = 1.0 - np.eye(self._width)
        known = bool(hints.handover_ms)
        fixed_spread = (0.5 * costs.fixed_ms + (0.05 if known else 0.5) * typical_ms) * other
        byte_spread = (
            0.5 * costs.ms_per_byte + (0.05 if known else 0.5) * typical_ms / typical_bytes
        ) * other
        pairs = [np.minimum(costs.unit_ms[start], costs.unit_ms[end]) for start, end in wiring.edges]
        together_spread = _NEIGHBOURS * np.array(pairs).reshape(len(wiring.edges), self._width)
        self.prior = costs
        self.mean = self.flat(costs)
        self.spread = np.concatenate(
            [
                (trust * costs.unit_ms + 0.02 * typical_ms).ravel(),
                fixed_spread.ravel(),
                byte_spread.ravel(),
                together_spread.ravel(),
            ]
        )

    def fit(self, rows: Rows, times_ms: Numbers, segments: Sequence[SegmentTime] = ()) -> Calibrated:
        """The posterior after these placements took these times.

        Args:
            rows: Shape (measured, units); may be empty.
            times_ms: Shape (measured,).
            segments: What segments of those placements took.
        """
        seen_ms = np.concatenate([times_ms, [segment.ms for segment in segments]])
        design = np.concatenate([self.design(rows), self._segment_design(segments)])
        scaled = design * self.spread
        noise_ms = NOISE_SHARE * seen_ms + self.least_ms
        inverse = (
            np.linalg.inv(scaled @ scaled.T + np.diag(noise_ms**2)) if len(seen_ms) else np.zeros((0, 0))
        )
        residual_ms = seen_ms - design @ self.mean
        weights = inverse @ residual_ms
        posterior = self.mean + self.spread**2 * (design.T @ weights)
        left_out_ms = times_ms - _left_out_residuals(len(rows), segments, inverse, weights)
        return Calibrated(
            costs=self.costs(posterior),
            left_out_ms=np.maximum(left_out_ms, self.least_ms),
            _calibration=self,
            _design=design,
            _residual_ms=residual_ms,
            _noise_ms=noise_ms,
            _inverse=inverse,
        )

    def design(self, rows: Rows) -> Numbers:
        """What multiplies each number of the model in the total time, shape (placements, numbers)."""
        count, units = rows.shape
        counts, sizes = self.wiring.handovers(rows)
        together: NDArray[np.float64] = np.zeros((count, len(self.wiring.edges), self._width))
        every = np.arange(count)
        for edge, (start, end) in enumerate(self.wiring.edges):
            together[every, edge, rows[:, start]] = rows[:, start] == rows[:, end]
        chosen = np.zeros((count, units, self._width))
        chosen[every[:, None], np.arange(units), rows] = 1.0
        return np.concatenate(
            [part.reshape(count, math.prod(part.shape[1:])) for part in (chosen, counts, sizes, together)],
            axis=1,
        )

    def _segment_design(self, segments: Sequence[SegmentTime]) -> Numbers:
        """The same for the time of a segment: its units, and its neighbours among them."""
        made = np.zeros((len(segments), len(self.mean)))
        first_edge = len(self.mean) - len(self.wiring.edges) * self._width
        for row, segment in enumerate(segments):
            units = set(segment.units)
            made[row, [unit * self._width + segment.platform for unit in segment.units]] = 1.0
            for edge, (start, end) in enumerate(self.wiring.edges):
                if start in units and end in units:
                    made[row, first_edge + edge * self._width + segment.platform] = 1.0
        return made

    def flat(self, costs: AdditiveCosts) -> Numbers:
        """The numbers of a model in the order of :meth:`design`."""
        parts = (costs.unit_ms, costs.fixed_ms, costs.ms_per_byte, costs.together_ms)
        return np.concatenate([part.ravel() for part in parts])

    def costs(self, numbers: Numbers) -> AdditiveCosts:
        """The model with these numbers, undoing :meth:`flat`."""
        width = self._width
        ends = np.cumsum([self.wiring.units * width, width * width, width * width])
        unit_ms, fixed_ms, ms_per_byte, together_ms = np.split(numbers, ends)
        return AdditiveCosts(
            unit_ms.reshape(-1, width),
            fixed_ms.reshape(width, width),
            ms_per_byte.reshape(width, width),
            together_ms.reshape(-1, width),
        )


def _left_out_residuals(
    samples: int, segments: Sequence[SegmentTime], inverse: Numbers, weights: Numbers
) -> Numbers:
    """For each total, how far it is from the fit without it and without the segments seen in it alone.

    The closed form for leaving out a block: solve (inverse of the covariance, that block) x = (weights, that block).
    """
    own: list[list[int]] = [[sample] for sample in range(samples)]
    for row, segment in enumerate(segments, start=samples):
        if segment.sample is not None:
            own[segment.sample].append(row)
    return np.array([np.linalg.solve(inverse[np.ix_(block, block)], weights[block])[0] for block in own])


def _guessed_costs(wiring: Wiring, hints: SearchHints, usual_ms: float) -> AdditiveCosts:
    """Without unit times: half of the usual time spread evenly, half by work, the same on every platform."""
    graph = wiring.space.unit_graph
    macs = np.array([sum(graph.graph.nodes[node].macs for node in unit.nodes) for unit in graph.units], float)
    by_work = macs / macs.sum() if macs.sum() > 0 else np.full(wiring.units, 1.0 / wiring.units)
    unit_ms = usual_ms * (0.5 / wiring.units + 0.5 * by_work)
    fixed_ms, ms_per_byte = handover_arrays(wiring.platforms, hints.handover_ms)
    width = len(wiring.platforms)
    return AdditiveCosts(
        np.repeat(unit_ms[:, None], width, axis=1),
        fixed_ms,
        ms_per_byte,
        np.zeros((len(wiring.edges), width)),
    )
