"""Learns placement -> total time from samples and measures what it predicts to be fast (patent claims 2 and 3).

One round: calibrate the additive model on everything measured, fit boosted trees on what it leaves over (the
logarithm of measured / predicted), look at many candidates, ask for those from which most improvement is expected.
The first round has nothing to learn from and asks for the rules of thumb and a few random placements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeplace.optimizers import candidates
from edgeplace.optimizers.additive import Numbers, Rows, Wiring
from edgeplace.optimizers.base import FinishedBy, Optimizer
from edgeplace.optimizers.calibration import Calibrated, Calibration, SegmentTime
from edgeplace.optimizers.features import FeatureMap
from edgeplace.optimizers.rules import rule_placements
from edgeplace.optimizers.shortest_path import shortest_path
from edgeplace.placement.plan import Placement
from edgeplace.placement.segmentation import make_plan
from edgeplace.placement.space import PlacementSpace

SEED_SAMPLES = 16
"""Placements measured before the first prediction, fewer when the budget is small; the single platforms always."""
PATIENCE = 3
"""Batches without a better placement before the search may end with budget left."""
WORTH_SHARE = 0.005
"""A predicted gain smaller than this share is not worth a measurement."""
LEAST_CHANCE = 0.02
"""What is less likely to run than this is not measured once something runs."""
GIVE_UP_AFTER = 64
"""Measurements without a single one that ran before the search ends."""

_CAUTION = (0.0, 0.0, 0.5, 1.0, 0.0, 2.0, 0.0, 1.0)
"""For each place in a batch, how many standard deviations of hope are added to the prediction."""
_MIN_TO_LEARN = 6
"""Fewer samples than this say nothing to boosted trees."""
_MOST_SEGMENTS = 400
_PARENTS = 6
_ROUNDS = 3
_DRAWS = 6
_SEARCH_STATES = 64


@dataclass(frozen=True)
class _Scored:
    """Candidates and what is predicted of them; logarithms of ms."""

    rows: Rows
    log_ms: Numbers
    spread: Numbers
    runs: Numbers

    def likely(self) -> _Scored:
        """Those that have a chance to run: a crash on a board can cost more than many measurements."""
        kept = self.runs >= LEAST_CHANCE
        return _Scored(self.rows[kept], self.log_ms[kept], self.spread[kept], self.runs[kept])

    def joined(self, more: _Scored) -> _Scored:
        """These candidates and then those."""
        return _Scored(
            np.concatenate([self.rows, more.rows]),
            np.concatenate([self.log_ms, more.log_ms]),
            np.concatenate([self.spread, more.spread]),
            np.concatenate([self.runs, more.runs]),
        )

    def ranking(self, best_log_ms: float, hope: float) -> list[int]:
        """Candidates by expected use, best first; ties in their order."""
        gain = best_log_ms - (self.log_ms - hope * self.spread)
        # A gain counts as far as the placement is likely to run; a loss weighs more when it is not.
        use = np.where(gain > 0, gain * self.runs, gain / self.runs)
        return [int(index) for index in np.argsort(-use, kind="stable")]


class Surrogate(Optimizer):
    """Gradient-boosted search with calibrated shortest paths among its candidates."""

    name = "surrogate"

    def __init__(self, space: PlacementSpace, **arguments: Any) -> None:
        super().__init__(space, **arguments)
        self._wiring = Wiring(space)
        self._features = FeatureMap(self._wiring)
        self._segments: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        self._whole = space.size <= candidates.ALL_UP_TO
        self._end: FinishedBy = "space" if self._whole else "converged"

    def do_propose(self) -> Iterable[Placement]:
        seeds = self._seeds()
        if len(self.results) < len(seeds):
            yield from seeds
        chance = self._chance(len(self.results))
        yield from self._learned(chance) if self.timed() else self._without_times(chance)

    def do_explain_end(self) -> FinishedBy:
        return "space" if len(self.results) >= self.space.size else self._end

    def _seeds(self) -> list[Placement]:
        """What is measured before anything is predicted: the rules of thumb and some random placements."""
        rules = [item.placement for item in rule_placements(self.space, self.hints)]
        wanted = SEED_SAMPLES if self.budget is None else min(SEED_SAMPLES, self.budget // 3)
        fresh = candidates.random_rows(self._wiring, max(0, wanted - len(rules)), self._chance(0))
        return [*rules, *self._placements(fresh)]

    def _chance(self, step: int) -> np.random.Generator:
        """Chance that follows from the seed and how much was told, and from nothing else."""
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, step])))

    def _learned(self, chance: np.random.Generator) -> Iterator[Placement]:
        timed = self.timed()
        rows = self._wiring.rows([placement for placement, _ in timed])
        times_ms = np.array([ms for _, ms in timed])
        calibration = Calibration(self._wiring, self.hints, usual_ms=float(np.median(times_ms)))
        fitted = calibration.fit(rows, times_ms, self._segment_times())
        model = _Model(self._features, calibration, fitted, rows, times_ms, seed=int(chance.integers(2**31)))
        best_log_ms = float(np.log(times_ms.min()))
        scored = self._look_around(model, fitted, rows[np.argsort(times_ms, kind="stable")], chance).likely()
        if self._nothing_better(scored, best_log_ms):
            self._end = "converged"
            return
        yield from self._placements(scored.rows[_batch_order(scored, best_log_ms)])

    def _segment_times(self) -> list[SegmentTime]:
        """What each segment took, the median of where it was seen; the latest ones when there are very many."""
        times: dict[tuple[str, tuple[int, ...]], list[tuple[int, float]]] = {}
        timings = [(placement, m.timing) for placement, m in self.results if m.timing is not None]
        for sample, (placement, timing) in enumerate(timings):
            if not timing.segment_ms:
                continue
            if placement.id not in self._segments:
                plan = make_plan(self.space.unit_graph, placement)
                self._segments[placement.id] = [(s.platform, s.units) for s in plan.segments]
            segments = self._segments[placement.id]
            if len(segments) == len(timing.segment_ms):
                for segment, ms in zip(segments, timing.segment_ms, strict=True):
                    times.setdefault(segment, []).append((sample, ms))
        number = {name: index for index, name in enumerate(self._wiring.platforms)}
        return [
            SegmentTime(
                units=units,
                platform=number[platform],
                ms=float(np.median([ms for _, ms in seen])),
                sample=seen[0][0] if len({sample for sample, _ in seen}) == 1 else None,
            )
            for (platform, units), seen in list(times.items())[-_MOST_SEGMENTS:]
        ]

    def _look_around(
        self, model: _Model, fitted: Calibrated, fastest: Rows, chance: np.random.Generator
    ) -> _Scored:
        """Candidates that were not measured yet, with what is predicted of them."""
        if self._whole:
            return self._score(model, candidates.all_rows(self._wiring))
        wiring = self._wiring
        drawn = [fitted.costs, *(fitted.draw(chance) for _ in range(_DRAWS))]
        paths = [shortest_path(wiring, costs, max_states=_SEARCH_STATES).placement for costs in drawn]
        parents = np.concatenate([fastest[:_PARENTS], wiring.rows(paths)])
        pool = candidates.unique_rows(
            [
                wiring.rows(paths),
                *(candidates.flips(wiring, row) for row in parents[: _PARENTS + 1]),
                *(candidates.run_flips(wiring, row, 40, chance) for row in parents),
                candidates.crossovers(wiring, parents, 80, chance),
                candidates.random_rows(wiring, 60, chance),
            ]
        )
        scored = self._score(model, pool)
        best_log_ms = float(model.predict(fastest[:1])[0][0])
        for _ in range(_ROUNDS):
            promising = scored.rows[scored.ranking(best_log_ms, hope=1.0)[:_PARENTS]]
            near = candidates.unique_rows(
                [scored.rows, *(candidates.flips(wiring, row) for row in promising)]
            )
            scored = scored.joined(self._score(model, near[len(scored.rows) :]))
        return scored

    def _score(self, model: _Model, rows: Rows) -> _Scored:
        known = {row.tobytes() for row in self._wiring.rows([placement for placement, _ in self.results])}
        fresh = rows[[row.tobytes() not in known for row in rows]]
        log_ms, spread = model.predict(fresh)
        return _Scored(fresh, log_ms, spread, self.feasibility.probability(fresh))

    def _nothing_better(self, scored: _Scored, best_log_ms: float) -> bool:
        """True when the best is old and no candidate is likely to beat it by what is worth a measurement."""
        best = self.best()
        since_best = [placement for placement, _ in self.results][::-1].index(best) if best else 0
        if since_best < PATIENCE * self.batch_size:
            return False
        hoped = best_log_ms - (scored.log_ms - 2.0 * scored.spread)
        return not bool(np.any(hoped * scored.runs > WORTH_SHARE))

    def _without_times(self, chance: np.random.Generator) -> Iterator[Placement]:
        """As long as nothing ran: what is most likely to run, the cheapest first where unit times are known."""
        if len(self.results) >= GIVE_UP_AFTER:
            self._end = "infeasible"
            return
        wiring = self._wiring
        if self._whole:
            rows = candidates.all_rows(wiring)
        else:
            tried = wiring.rows([placement for placement, _ in self.results])
            changed = [candidates.run_flips(wiring, row, 20, chance) for row in tried]
            rows = candidates.unique_rows([candidates.random_rows(wiring, 200, chance), *changed])
        cost_ms = Calibration(wiring, self.hints, usual_ms=1.0).prior.predict_ms(wiring, rows)
        order = np.lexsort((cost_ms, -self.feasibility.probability(rows)))
        yield from self._placements(rows[order])

    def _placements(self, rows: Rows) -> Iterator[Placement]:
        return (self._wiring.placement(row) for row in rows)


class _Model:
    """Calibrated additive model times what boosted trees learned of its errors."""

    def __init__(
        self,
        features: FeatureMap,
        calibration: Calibration,
        fitted: Calibrated,
        rows: Rows,
        times_ms: Numbers,
        *,
        seed: int,
    ) -> None:
        # Imported when used: it takes a second, which no other command should pay.
        from edgeplace.optimizers.boosting import BoostedEnsemble

        self._features = features
        self._prior = calibration.prior
        self._fitted = fitted
        self._trees = None
        if len(rows) >= _MIN_TO_LEARN:
            target = np.log(times_ms / fitted.left_out_ms)
            self._trees = BoostedEnsemble(features.rows(rows, self._prior), target, seed=seed)

    def predict(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """Logarithm of the time in ms and its standard deviation, each of shape (placements,)."""
        if not len(rows):
            return np.zeros(0), np.zeros(0)
        mean_ms, spread_ms = self._fitted.predict(rows)
        log_ms, variance = np.log(mean_ms), (spread_ms / mean_ms) ** 2
        if self._trees is not None:
            shift, unsure = self._trees.predict(self._features.rows(rows, self._prior))
            log_ms, variance = log_ms + shift, variance + unsure**2
        return log_ms, np.sqrt(variance)


def _batch_order(scored: _Scored, best_log_ms: float) -> list[int]:
    """Candidates in the order to ask them: one per place of the batch by its caution, then the rest by none."""
    rankings = {hope: scored.ranking(best_log_ms, hope) for hope in dict.fromkeys(_CAUTION)}
    order: dict[int, None] = {}
    for hope in _CAUTION:
        order.update(dict.fromkeys([next((i for i in rankings[hope] if i not in order), 0)]))
    order.update(dict.fromkeys(rankings[0.0]))
    return list(order)[: len(scored.rows)]
