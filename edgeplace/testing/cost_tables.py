"""Made-up boards: tables that say what a placement costs, so that optimizers can be tried without hardware.

A board's time is additive (units and hand-overs) plus what an additive model cannot know: neighbours on one platform
that help or hurt each other, and groups of units that do so only when all of them are on one platform. Everything
follows from the seed; noise follows from the seed, the placement and how often it was measured.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgeplace.measure.measurement import Failure, Measurement, Timing
from edgeplace.optimizers import candidates
from edgeplace.optimizers.additive import AdditiveCosts, Numbers, Rows, Wiring
from edgeplace.optimizers.base import SearchHints
from edgeplace.optimizers.shortest_path import shortest_path
from edgeplace.placement.plan import Placement, Plan
from edgeplace.placement.segmentation import make_plan
from edgeplace.placement.space import PlacementSpace


@dataclass(frozen=True, slots=True)
class Group:
    """Units that add (or save, when negative) ``ms`` when all of them are on platform number ``platform``."""

    units: tuple[int, ...]
    platform: int
    ms: float


@dataclass
class CostTable:
    """A made-up board.

    Attributes:
        costs: Unit times, hand-overs, and what neighbours on one platform add or save.
        groups: What no model of pairs can know.
        noise: Standard deviation of the logarithm of a measured time.
        broken: (unit, platform) pairs that take down whatever segment they are in.
        longest_segment: Platform -> most units it takes in one segment; more is ``out_of_memory``.
        tells_segments: Measurements carry the time of each segment and hand-over, and not only the total.
        measured: How many measurements were taken.
    """

    space: PlacementSpace
    costs: AdditiveCosts
    groups: tuple[Group, ...] = ()
    seed: int = 0
    noise: float = 0.0
    broken: frozenset[tuple[int, str]] = frozenset()
    longest_segment: Mapping[str, int] = field(default_factory=dict)
    tells_segments: bool = True
    measured: int = 0

    def __post_init__(self) -> None:
        self.wiring = Wiring(self.space)
        self._repeats: dict[str, int] = {}

    @classmethod
    def made_up(
        cls,
        space: PlacementSpace,
        *,
        seed: int,
        interaction: float = 0.0,
        hidden: float = 0.0,
        noise: float = 0.0,
        broken: frozenset[tuple[int, str]] = frozenset(),
        longest_segment: Mapping[str, int] | None = None,
    ) -> CostTable:
        """A board with random costs.

        Unit times are log-normal (0.1 to 10 ms mostly), with a general speed per platform and a taste per unit, so
        that mixing platforms pays. A hand-over costs about a quarter of a unit.

        Args:
            interaction: How strongly neighbours on one platform matter, as a share of the faster one's time
                there: 0 is an additive board, at 1 the additive model is of little use.
            hidden: The same for groups of two to four units that stand near each other but are not neighbours;
                there are twice as many groups as units.
        """
        wiring = Wiring(space)
        chance = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 20])))
        width = len(wiring.platforms)
        work = chance.lognormal(0.0, 0.8, size=(wiring.units, 1))
        speed = chance.lognormal(0.0, 0.25, size=(1, width))
        taste = chance.lognormal(0.0, 0.6, size=(wiring.units, width))
        unit_ms = work * speed * taste
        usual_ms = float(np.median(unit_ms))
        off_diagonal = 1.0 - np.eye(width)
        fixed_ms = 0.2 * usual_ms * chance.uniform(0.5, 1.5, size=(width, width)) * off_diagonal
        usual_bytes = float(np.mean([item.size_bytes for item in wiring.carried] or [1]))
        ms_per_byte = 0.1 * usual_ms / usual_bytes * chance.uniform(0.5, 1.5, (width, width)) * off_diagonal
        together_ms = np.zeros((len(wiring.edges), width))
        for edge, (start, end) in enumerate(wiring.edges):
            # Mostly a gain (fused, still in cache), at times a loss (a layout must be changed in between).
            pull = chance.uniform(-1.0, 0.5, size=width)
            together_ms[edge] = interaction * pull * np.minimum(unit_ms[start], unit_ms[end])
        groups = []
        for _ in range(2 * wiring.units if hidden and wiring.units >= 6 else 0):
            first = int(chance.integers(0, wiring.units - 5))
            size = int(chance.integers(2, 5))
            units = tuple(sorted((first + chance.choice(6, size=size, replace=False)).tolist()))
            platform = int(chance.integers(width))
            least_ms = float(unit_ms[list(units), platform].min())
            groups.append(Group(units, platform, hidden * float(chance.uniform(-1.0, 1.0)) * least_ms))
        costs = AdditiveCosts(unit_ms, fixed_ms, ms_per_byte, together_ms)
        return cls(space, costs, tuple(groups), seed, noise, broken, dict(longest_segment or {}))

    def true_ms(self, placement: Placement) -> float:
        """The time without noise, whether it runs or not."""
        return float(self.all_true_ms(self.wiring.rows([placement]))[0])

    def all_true_ms(self, rows: Rows) -> Numbers:
        """The times without noise of many placements given as integers, shape (placements,)."""
        total = self.costs.predict_ms(self.wiring, rows)
        for group in self.groups:
            total = total + group.ms * (rows[:, list(group.units)] == group.platform).all(axis=1)
        return np.asarray(np.maximum(total, 1e-6))

    def failure(self, placement: Placement) -> Failure | None:
        """Why the placement does not run, ``None`` when it does."""
        for segment in make_plan(self.space.unit_graph, placement).segments:
            if any((unit, segment.platform) in self.broken for unit in segment.units):
                return Failure("crashed", "made up", "prepare", segment.id, segment.platform, 11)
            if len(segment.units) > self.longest_segment.get(segment.platform, len(segment.units)):
                return Failure("out_of_memory", "made up", "compile", segment.id, segment.platform)
        return None

    def measure(self, placement: Placement) -> Measurement:
        """Measure the placement; a repeat gives other noise."""
        self.measured += 1
        plan = make_plan(self.space.unit_graph, placement)
        failure = self.failure(placement)
        if failure is not None:
            return Measurement(placement.id, plan.id, failure=failure, simulated=True)
        repeat = self._repeats[placement.id] = self._repeats.get(placement.id, -1) + 1
        entropy = [self.seed, int(placement.id, 16), repeat]
        chance = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
        times = self.true_ms(placement) * np.exp(chance.normal(0.0, self.noise, size=5))
        p50_ms = float(np.median(times))
        slowness = p50_ms / self.true_ms(placement)
        segment_ms, handover_ms = self._shares(placement, plan) if self.tells_segments else ((), ())
        timing = Timing(
            times_ms=tuple(times.tolist()),
            p50_ms=p50_ms,
            ci95_ms=(float(times.min()), float(times.max())),
            min_ms=float(times.min()),
            p90_ms=float(np.quantile(times, 0.9)),
            p99_ms=float(np.quantile(times, 0.99)),
            segment_ms=tuple(ms * slowness for ms in segment_ms),
            handover_ms=tuple(ms * slowness for ms in handover_ms),
        )
        return Measurement(placement.id, plan.id, timing=timing, simulated=True)

    def _shares(self, placement: Placement, plan: Plan) -> tuple[list[float], list[float]]:
        """The true time of each segment and of getting it its inputs; together they are the total.

        What neighbours and groups add goes to the segment of their last unit.
        """
        (row,) = self.wiring.rows([placement]).tolist()
        segment_of = {unit: segment.id for segment in plan.segments for unit in segment.units}
        segment_ms, handover_ms = [0.0] * len(plan.segments), [0.0] * len(plan.segments)
        for unit, platform in enumerate(row):
            segment_ms[segment_of[unit]] += float(self.costs.unit_ms[unit, platform])
        for edge, (start, end) in enumerate(self.wiring.edges):
            if row[start] == row[end]:
                segment_ms[segment_of[end]] += float(self.costs.together_ms[edge, row[end]])
        for group in self.groups:
            if all(row[unit] == group.platform for unit in group.units):
                segment_ms[segment_of[group.units[-1]]] += group.ms
        for item in self.wiring.carried:
            start = row[item.producer]
            for end in dict.fromkeys(row[consumer] for consumer in item.consumers):
                if end != start:
                    reader = next(consumer for consumer in item.consumers if row[consumer] == end)
                    cost = (
                        self.costs.fixed_ms[start, end] + item.size_bytes * self.costs.ms_per_byte[start, end]
                    )
                    handover_ms[segment_of[reader]] += float(cost)
        return segment_ms, handover_ms

    def hints(self) -> SearchHints:
        """What measuring every unit alone and every hand-over once would tell: the additive part, exactly."""
        names = self.wiring.platforms
        return SearchHints(
            unit_times_ms={
                (unit, names[number]): float(self.costs.unit_ms[unit, number])
                for unit, numbers in enumerate(self.wiring.choices)
                for number in numbers
            },
            handover_ms={
                (names[i], names[j]): (float(self.costs.fixed_ms[i, j]), float(self.costs.ms_per_byte[i, j]))
                for i, j in itertools.permutations(range(len(names)), 2)
            },
        )

    @functools.cached_property
    def fastest(self) -> Placement:
        """The fastest placement that runs.

        Proven for spaces of up to 65536 placements (all are looked at) and for larger ones on boards without groups
        and failures (shortest path). Otherwise the best of a long local search that sees the true times: the best
        *known* one.

        Raises:
            ValueError: The space is large and some of it does not run.
        """
        if self.space.size <= 1 << 16:
            rows = candidates.all_rows(self.wiring)
            order = np.argsort(self.all_true_ms(rows), kind="stable")
            return next(p for row in order if not self.failure(p := self.wiring.placement(rows[row])))
        if self.broken or self.longest_segment:
            raise ValueError("the fastest placement of this board is not known")
        start = shortest_path(self.wiring, self.costs, max_states=1 << 12)
        if start.exact and not self.groups:
            return start.placement
        chance = np.random.Generator(np.random.PCG64(self.seed))
        starts = [self.wiring.rows([start.placement]), candidates.random_rows(self.wiring, 30, chance)]
        ends = np.stack([self._descend(row, chance) for row in np.concatenate(starts)])
        return self.wiring.placement(ends[self.all_true_ms(ends).argmin()])

    def regret(self, placement: Placement) -> float:
        """How much slower than :attr:`fastest`, as a share: 0 is as fast, below 0 is better than the best known."""
        ratio = self.true_ms(placement) / self.true_ms(self.fastest)
        return 0.0 if math.isclose(ratio, 1.0) else ratio - 1.0

    def _descend(self, row: Rows, chance: np.random.Generator) -> Rows:
        """The end of a walk that takes the best change of one unit or one run, until no change helps."""
        best_ms = math.inf
        while True:
            near = [candidates.flips(self.wiring, row), candidates.run_flips(self.wiring, row, 400, chance)]
            pool = np.concatenate([row[None], *near])
            times = self.all_true_ms(pool)
            if times.min() >= best_ms:
                return row
            row, best_ms = pool[times.argmin()], float(times.min())
