"""The search itself: the optimizer asks, the bench measures, until nothing better is to be had."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from edgeplace.catalog import OPTIMIZERS
from edgeplace.controller.requests import DEFAULT_SURROGATE_BUDGET, Observer, OptimizeRequest
from edgeplace.graph.graph import Graph
from edgeplace.measure.bench import Bench
from edgeplace.measure.board import LiveBoard
from edgeplace.measure.final import FinalResult
from edgeplace.measure.measurement import Failure, Measurement, Timing
from edgeplace.measure.numerics import Numerics
from edgeplace.measure.support import Support
from edgeplace.measure.workbench import Workbench
from edgeplace.optimizers.base import Optimizer, SearchHints
from edgeplace.optimizers.gate import choose_method
from edgeplace.placement.plan import Placement, Plan
from edgeplace.placement.space import PlacementSpace
from edgeplace.store import RecordKind
from edgeplace.tflite.reader import Model


class RunRecords(Protocol):
    """Where runs that are no placements of the search are kept: what it is compared with, and the final."""

    def keep(
        self, kind: RecordKind, plan_id: str, name: str, run: Callable[[], Timing | Failure]
    ) -> Timing | Failure:
        """Do a run between its own START and END."""

    def keep_final(self, run: Callable[[], FinalResult], plan_ids: Mapping[str, str]) -> FinalResult:
        """Hold the final between a START and an END, then keep everyone's raw runs."""


@dataclass(frozen=True)
class Search:
    """Everything known when the search is over and the final has not begun.

    Attributes:
        finished_by: What ended the search: one of the optimizer's own reasons, or ``minutes``.
    """

    request: OptimizeRequest
    board: LiveBoard
    numerics: Numerics
    support: Support
    bench: Bench
    optimizer: Optimizer
    records: RunRecords
    finished_by: str

    @property
    def space(self) -> PlacementSpace:
        """The feasible placements."""
        return self.optimizer.space

    @property
    def workbench(self) -> Workbench:
        """Where plans run."""
        return self.bench.workbench

    @property
    def graph(self) -> Graph:
        """The graph that is placed."""
        return self.bench.workbench.graph

    @property
    def model(self) -> Model:
        """The model it is of."""
        return self.bench.workbench.model


def choose_optimizer(
    request: OptimizeRequest, space: PlacementSpace, support: Support, bench: Bench
) -> Optimizer:
    """Claim 2: fewer placements than the threshold are all measured, otherwise the trained optimizer searches.

    Raises:
        UnknownNameError: There is no optimizer of the name asked for.
    """
    name = request.optimizer or choose_method(space.size, request.threshold)
    budget = request.budget
    if budget is None and name != "exhaustive":
        budget = DEFAULT_SURROGATE_BUDGET
    return OPTIMIZERS.get(name)(
        space,
        seed=request.seed,
        budget=budget,
        hints=SearchHints(unit_times_ms=support.unit_times_ms()),
        plan_key=lambda placement: bench.plan(placement).id,
    )


def measure_until_done(optimizer: Optimizer, bench: Bench, minutes: float | None, watch: Observer) -> str:
    """Ask, measure, tell, until the optimizer is done or the time is up; says what ended it."""
    started_s = time.monotonic()
    best_ms: float | None = None
    watch.stage(f"measuring ({optimizer.name})", _expected_measurements(optimizer))
    while placements := optimizer.ask():
        results: list[tuple[Placement, Measurement]] = []
        for placement in placements:
            if minutes is not None and time.monotonic() - started_s > minutes * 60:
                optimizer.tell(results)
                return "minutes"
            measurement = bench.measure(placement)
            results.append((placement, measurement))
            if measurement.p50_ms is not None:
                best_ms = measurement.p50_ms if best_ms is None else min(best_ms, measurement.p50_ms)
            best = "nothing works yet" if best_ms is None else f"best so far {best_ms:.3f} ms"
            watch.advance(f"{best}; last: {_in_words(bench.plan(placement))}")
        optimizer.tell(results)
    return optimizer.finished_by


def _expected_measurements(optimizer: Optimizer) -> int:
    return optimizer.space.size if optimizer.budget is None else min(optimizer.budget, optimizer.space.size)


def _in_words(plan: Plan) -> str:
    platforms = dict.fromkeys(segment.platform for segment in plan.segments)
    count = len(plan.segments)
    return f"{count} segment{'' if count == 1 else 's'} on {' + '.join(platforms)}"
