"""The contract of an optimizer: it asks for placements and is told how they measured. It never opens a link.

To add one: subclass :class:`Optimizer` in a file of its own, add it to ``catalog.OPTIMIZERS``; the contract tests in
``tests/test_optimizer_contract.py`` then run on it (docs/adding-an-optimizer.md).
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from edgeplace.measure.measurement import Measurement
from edgeplace.optimizers.feasibility import Feasibility
from edgeplace.placement.plan import Placement
from edgeplace.placement.space import PlacementSpace

FinishedBy = Literal["", "budget", "space", "converged", "infeasible", "list"]
"""Why a search is over: still running; the budget is spent; every placement is measured (or known not to run);
nothing better is predicted; nothing that was tried runs; the fixed list of proposals is at its end."""


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

    This class keeps the promises every optimizer makes: nothing is asked twice, nothing outside the space, nothing
    over the budget, no two placements with the same plan, and nothing that contains a segment which failed twice on
    its platform. A subclass only says what it would like to measure next (:meth:`do_propose`).

    Args:
        space: The feasible placements.
        budget: How many placements it may ask for in all; ``None`` means no limit.
        plan_key: Names the plan of a placement; placements of one name are measured once. Without it every
            placement is its own.

    Attributes:
        finished_by: Why the search is over, empty while it is not.
    """

    name: ClassVar[str]
    batch_size: ClassVar[int] = 8
    """How many placements are asked for at once."""

    def __init__(
        self,
        space: PlacementSpace,
        *,
        seed: int = 0,
        budget: int | None = None,
        hints: SearchHints | None = None,
        plan_key: Callable[[Placement], str] | None = None,
    ) -> None:
        self.space = space
        self.seed = seed
        self.budget = budget
        self.hints = hints or SearchHints()
        self.finished_by: FinishedBy = ""
        self.feasibility = Feasibility(space)
        self._plan_key = plan_key
        self._asked = 0
        self._pending: dict[str, Placement] = {}
        self._results: dict[str, tuple[Placement, Measurement]] = {}
        self._seen: set[str] = set()

    def ask(self) -> Sequence[Placement]:
        """The next placements to measure, none of them asked before; empty when the search is over.

        Everything asked is told before the next ``ask``; what was not yet told is given again, first thing.
        """
        if self._pending:
            return tuple(self._pending.values())
        if self.finished_by:
            return ()
        room = self.batch_size if self.budget is None else min(self.batch_size, self.budget - self._asked)
        if room <= 0:
            self.finished_by = "budget"
            return ()
        for placement in self.do_propose():
            if self._is_new(placement):
                self._pending[placement.id] = placement
                if len(self._pending) == room:
                    break
        self._asked += len(self._pending)
        if not self._pending and not self.finished_by:
            self.finished_by = self.do_explain_end()
        return tuple(self._pending.values())

    def tell(self, results: Sequence[tuple[Placement, Measurement]]) -> None:
        """Take in what was measured, in the order it was asked.

        What was not asked for is welcome too (a measurement from elsewhere); it is not asked for later and does not
        count against the budget. Telling a placement again replaces what was told before.
        """
        for placement, measurement in results:
            self._pending.pop(placement.id, None)
            self._seen.add(self._key(placement))
            self._results[placement.id] = (placement, measurement)
            self.feasibility.tell(placement, measurement)

    def best(self) -> Placement | None:
        """The fastest *measured* placement that did not fail, ``None`` when there is none."""
        times = [(ms, placement) for placement, ms in self.timed()]
        return min(times, key=lambda pair: pair[0])[1] if times else None

    @property
    def results(self) -> tuple[tuple[Placement, Measurement], ...]:
        """Everything told so far, in order."""
        return tuple(self._results.values())

    def timed(self) -> tuple[tuple[Placement, float], ...]:
        """What did not fail, in the order it was told, with its median total time in ms."""
        return tuple((p, m.timing.p50_ms) for p, m in self._results.values() if m.timing is not None)

    @abc.abstractmethod
    def do_propose(self) -> Iterable[Placement]:
        """What this optimizer would measure next, best first.

        May be longer than a batch, hold placements that were asked before, or be endless: it is read until a batch
        is full, and what is not wanted is passed over. When nothing new comes out of it, the search is over.
        A choice by chance must follow from ``seed`` and what was told, and never from the order of a set.
        """

    def do_explain_end(self) -> FinishedBy:
        """Why there is nothing left to propose."""
        return "space"

    def _is_new(self, placement: Placement) -> bool:
        if placement not in self.space or placement.id in self._pending:
            return False
        key = self._key(placement)
        if key in self._seen or not self.feasibility.allows(placement):
            return False
        self._seen.add(key)
        return True

    def _key(self, placement: Placement) -> str:
        return placement.id if self._plan_key is None else self._plan_key(placement)
