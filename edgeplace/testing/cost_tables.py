"""Made-up boards: tables that say what a placement costs, so that optimizers can be tried without hardware.

A board's time is additive (units and hand-overs) plus what an additive model cannot know: neighbours on one platform
that help or hurt each other, and a launch cost per platform that comes and goes. Everything follows from the seed;
noise follows from the seed, the placement and how often it was measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgeplace.measure.measurement import Failure, Measurement, Timing
from edgeplace.optimizers.additive import AdditiveCosts, Wiring
from edgeplace.optimizers.base import SearchHints
from edgeplace.optimizers.shortest_path import shortest_path
from edgeplace.placement.plan import Placement
from edgeplace.placement.segmentation import make_plan
from edgeplace.placement.space import PlacementSpace


@dataclass
class CostTable:
    """A made-up board.

    Attributes:
        costs: Unit times, hand-overs, and what neighbours on one platform add or save.
        noise: Standard deviation of the logarithm of a measured time.
        broken: (unit, platform) pairs that take down whatever segment they are in.
        longest_segment: Platform -> most units it takes in one segment; more is ``out_of_memory``.
        measured: How many measurements were taken.
    """

    space: PlacementSpace
    costs: AdditiveCosts
    seed: int = 0
    noise: float = 0.0
    broken: frozenset[tuple[int, str]] = frozenset()
    longest_segment: Mapping[str, int] = field(default_factory=dict)
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
        noise: float = 0.0,
        broken: frozenset[tuple[int, str]] = frozenset(),
        longest_segment: Mapping[str, int] | None = None,
    ) -> CostTable:
        """A board with random costs.

        Unit times are log-normal (0.1 to 10 ms mostly), with a general speed per platform and a taste per unit, so
        that mixing platforms pays. A hand-over costs about a quarter of a unit.

        Args:
            interaction: How strongly neighbours on one platform matter, as a share of the faster one's time
                there: 0 is an additive board, at 1 nothing can be said without measuring.
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
        costs = AdditiveCosts(unit_ms, fixed_ms, ms_per_byte, together_ms)
        return cls(space, costs, seed, noise, broken, dict(longest_segment or {}))

    def true_ms(self, placement: Placement) -> float:
        """The time without noise, whether it runs or not."""
        return float(self.costs.predict_ms(self.wiring, self.wiring.rows([placement]))[0])

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
        plan_id = make_plan(self.space.unit_graph, placement).id
        failure = self.failure(placement)
        if failure is not None:
            return Measurement(placement.id, plan_id, failure=failure, simulated=True)
        repeat = self._repeats[placement.id] = self._repeats.get(placement.id, -1) + 1
        entropy = [self.seed, int(placement.id, 16), repeat]
        chance = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
        times = self.true_ms(placement) * np.exp(chance.normal(0.0, self.noise, size=5))
        p50_ms = float(np.median(times))
        timing = Timing(
            times_ms=tuple(times.tolist()),
            p50_ms=p50_ms,
            ci95_ms=(float(times.min()), float(times.max())),
            min_ms=float(times.min()),
            p90_ms=float(np.quantile(times, 0.9)),
            p99_ms=float(np.quantile(times, 0.99)),
        )
        return Measurement(placement.id, plan_id, timing=timing, simulated=True)

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

    def optimum(self) -> Placement:
        """The truly fastest placement of a board without failures.

        Raises:
            ValueError: The graph is too wide for that to be known.
        """
        found = shortest_path(self.wiring, self.costs, max_states=1 << 16)
        if not found.exact or self.broken or self.longest_segment:
            raise ValueError("the fastest placement of this board is not known")
        return found.placement

    def regret(self, placement: Placement) -> float:
        """How much slower than the fastest one, as a share: 0 is the optimum."""
        ratio = self.true_ms(placement) / self.true_ms(self.optimum())
        return 0.0 if math.isclose(ratio, 1.0) else ratio - 1.0
