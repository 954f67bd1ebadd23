"""The contract of an optimizer: it asks for placements and is told how they measured. It never opens a link.

To add one: subclass :class:`Optimizer` in a file of its own, add it to ``catalog.OPTIMIZERS``; the contract tests in
``tests/test_optimizer_contract.py`` then run on it.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from edgeplace.measure.measurement import Measurement
from edgeplace.placement.plan import Placement
from edgeplace.placement.space import PlacementSpace


@dataclass(frozen=True)
class SearchHints:
    """What is known before the search begins; every field may be empty.

    Attributes:
        unit_times_ms: (unit id, platform) -> median time of that unit alone on that platform.
        handover_ms: (from platform, to platform) -> (fixed ms, ms per byte) of a hand-over.
    """

    unit_times_ms: Mapping[tuple[int, str], float] = field(default_factory=dict)
    handover_ms: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)


class Optimizer(abc.ABC):
    """Proposes placements and learns from their measurements.

    A pure function of (space, hints, seed, budget, what it was told): the same calls give the same proposals in any
    process, which is what lets a stopped search go on by replaying its records.

    Args:
        space: The feasible placements.
        budget: How many placements it may ask for in all; ``None`` means no limit.
    """

    name: ClassVar[str]

    def __init__(
        self,
        space: PlacementSpace,
        *,
        seed: int = 0,
        budget: int | None = None,
        hints: SearchHints | None = None,
    ) -> None:
        self.space = space
        self.seed = seed
        self.budget = budget
        self.hints = hints or SearchHints()

    @abc.abstractmethod
    def ask(self) -> Sequence[Placement]:
        """The next placements to measure, none of them asked before; empty when the search is over.

        Everything asked must be told before the next ``ask``.
        """

    @abc.abstractmethod
    def tell(self, results: Sequence[tuple[Placement, Measurement]]) -> None:
        """Take in what was measured, in the order it was asked."""

    @abc.abstractmethod
    def best(self) -> Placement | None:
        """The fastest *measured* placement that did not fail, ``None`` when there is none."""
