"""The bench: one placement in, one measurement out. Numbers are checked before anything is timed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from edgeplace.graph.graph import UnitGraph
from edgeplace.measure.conditions import (
    THROTTLED_ATTEMPTS,
    Sentinel,
    throttled_between,
    without_drift,
)
from edgeplace.measure.measurement import Agreement, Failure, Measurement, Timing
from edgeplace.measure.numerics import Numerics
from edgeplace.measure.statistics import TimingPlan
from edgeplace.measure.support import SupportFinder
from edgeplace.measure.workbench import Array, RunOutputs, Workbench
from edgeplace.placement.plan import Placement, Plan, Segment
from edgeplace.placement.segmentation import make_plan

LOG = logging.getLogger(__name__)

STRIKES = 2
"""A (segment, platform) pair that failed this often is not tried again."""


class Recorder(Protocol):
    """Where measurements are kept; a START is on the disk before a run begins, an END before the next."""

    def lookup(self, plan_id: str) -> Measurement | None:
        """What is recorded of a plan, ``None`` when nothing is."""

    def start(self, plan_id: str, placement: Placement) -> int:
        """Write the START of a run."""

    def end(self, token: int, measurement: Measurement) -> None:
        """Write its END."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """A segment that, fed the reference's own inputs, gave outputs too far from the reference's."""

    nodes: tuple[int, ...]
    platform: str
    reason: str
    agreement: Agreement | None


class Bench:
    """Measures placements of one model on one board.

    Placements that give the same plan are measured once. A plan with a segment that was found wrong, or failed twice,
    on its platform is not run again: it gets the failure that is known.

    Args:
        tensors: What the reference computes between units for the first sample, by tensor number.
        strikes: Plan id -> how often the host died while it ran.
    """

    def __init__(
        self,
        workbench: Workbench,
        unit_graph: UnitGraph,
        numerics: Numerics,
        tensors: Mapping[int, Array],
        timing: TimingPlan,
        finder: SupportFinder,
        *,
        trusted: frozenset[str],
        recorder: Recorder | None = None,
        strikes: Mapping[str, int] | None = None,
    ) -> None:
        self.workbench = workbench
        self.unit_graph = unit_graph
        self.culprits: list[Culprit] = []
        self._numerics = numerics
        self._tensors = tensors
        self._timing = timing
        self._finder = finder
        self._trusted = trusted
        self._recorder = recorder
        self._strikes = dict(strikes or {})
        self._by_plan: dict[str, Measurement] = {}
        self._known_bad: dict[tuple[tuple[int, ...], str], Failure] = {}
        self._sentinel = Sentinel()
        self._failures_seen: dict[tuple[tuple[int, ...], str], int] = {}

    def plan(self, placement: Placement) -> Plan:
        """The plan of a placement."""
        return make_plan(self.unit_graph, placement)

    def measure(self, placement: Placement) -> Measurement:
        """Check a placement's outputs, then time it; gives what is known when its plan was measured before.

        The record holds the times as they were; what is given has the board's drift since the start taken out.
        """
        plan = self.plan(placement)
        known = self._by_plan.get(plan.id)
        if known is None and self._recorder is not None:
            known = self._recorder.lookup(plan.id)
            if known is not None:
                self._learn(plan, known)
        if known is None:
            known = self._measure_and_record(plan, placement)
        self._by_plan[plan.id] = known
        drift = known.health.get("drift", 1.0)
        if known.timing is None or not isinstance(drift, float):
            return replace(known, placement_id=placement.id)
        return replace(known, placement_id=placement.id, timing=without_drift(known.timing, drift))

    def measured(self) -> tuple[Measurement, ...]:
        """Everything measured or looked up so far, one per plan."""
        return tuple(self._by_plan.values())

    def _measure_and_record(self, plan: Plan, placement: Placement) -> Measurement:
        token = self._recorder.start(plan.id, placement) if self._recorder is not None else 0
        measurement = self._measure(plan, placement)
        self._learn(plan, measurement)
        if self._recorder is not None:
            self._recorder.end(token, measurement)
        return measurement

    def _measure(self, plan: Plan, placement: Placement) -> Measurement:
        def failed(failure: Failure, agreement: Agreement | None = None) -> Measurement:
            return Measurement(placement.id, plan.id, failure=failure, agreement=agreement)

        known_bad = self._failure_known_of(plan)
        if known_bad is not None:
            return failed(known_bad)
        outputs = self.workbench.run(plan, self._numerics.inputs.samples)
        if isinstance(outputs, Failure):
            return failed(outputs)
        elsewhere = self._ran_elsewhere(plan, outputs)
        if elsewhere is not None:
            return failed(elsewhere)
        agreement, reason = self._numerics.judge(outputs, whole_cpu=self._is_whole_cpu(plan))
        if reason:
            return failed(self._blame(plan, reason, agreement), agreement)
        drift = self._sentinel.drift()
        timing, health = self._time(plan)
        if isinstance(timing, Failure):
            return failed(timing, agreement)
        self._sentinel.adopt(timing.p50_ms, lambda: _p50_ms(self._time(plan)[0]))
        return Measurement(
            placement.id,
            plan.id,
            timing=timing,
            agreement=agreement,
            health={**health, "drift": drift},
        )

    def _time(self, plan: Plan) -> tuple[Timing | Failure, dict[str, object]]:
        """Time a plan; what throttled is thrown away and timed again."""
        for _ in range(THROTTLED_ATTEMPTS):
            before = self.workbench.health()
            timing = self.workbench.measure(plan, self._numerics.inputs.samples[0], self._timing)
            after = self.workbench.health()
            throttled = throttled_between(before, after)
            if isinstance(timing, Failure) or not throttled:
                break
            LOG.warning("the board throttled while plan %s was timed", plan.id)
        return timing, {**after, "throttled_meanwhile": throttled}

    def _ran_elsewhere(self, plan: Plan, outputs: RunOutputs) -> Failure | None:
        """No silent fallback: a segment that the runtime ran, or ran in part, on something else than its platform.

        Units that go to a platform one by one may still be too many for it together.
        """
        for segment, accelerated, ran_on in zip(
            plan.segments, outputs.accelerated, outputs.ran_on, strict=False
        ):
            if accelerated is False and segment.platform not in self._trusted:
                return Failure(
                    "unsupported",
                    f"it ran on {ran_on}",
                    "compile",
                    segment=segment.id,
                    platform=segment.platform,
                )
        return None

    def _failure_known_of(self, plan: Plan) -> Failure | None:
        if self._strikes.get(plan.id, 0) >= STRIKES:
            return Failure("agent_lost", "the host died twice while this plan ran; it is not tried again")
        for segment in plan.segments:
            failure = self._known_bad.get((segment.nodes, segment.platform))
            if failure is not None:
                return replace(failure, segment=segment.id)
        return None

    def _learn(self, plan: Plan, measurement: Measurement) -> None:
        """Count a failure against the segment it happened in."""
        failure = measurement.failure
        if failure is None or failure.segment is None or failure.segment >= len(plan.segments):
            return
        segment = plan.segments[failure.segment]
        key = (segment.nodes, segment.platform)
        self._failures_seen[key] = self._failures_seen.get(key, 0) + 1
        if failure.kind == "wrong_output" or self._failures_seen[key] >= STRIKES:
            self._known_bad[key] = failure

    def _blame(self, plan: Plan, reason: str, agreement: Agreement) -> Failure:
        """The failure of a plan with wrong outputs, naming the segment that is wrong by itself if there is one.

        Each segment is run alone on its platform, fed what the reference kernels computed at its inputs. The only
        segment of a plan needs no such trial.
        """
        lone = len(plan.segments) == 1
        for segment in plan.segments:
            culprit = (
                Culprit(segment.nodes, segment.platform, reason, agreement)
                if lone
                else self._check_alone(segment)
            )
            if culprit is None:
                continue
            self.culprits.append(culprit)
            alone = f"; segment {segment.id} alone on {segment.platform}: {culprit.reason}"
            return Failure(
                "wrong_output",
                reason if lone else reason + alone,
                stage="check",
                segment=segment.id,
                platform=segment.platform,
            )
        return Failure(
            "wrong_output", f"{reason}; no segment alone is beyond the limit, the errors add up", "check"
        )

    def _check_alone(self, segment: Segment) -> Culprit | None:
        inputs = [self._tensors.get(tensor) for tensor in segment.inputs]
        if any(tensor is None for tensor in inputs):
            return None
        tried = self.workbench.attempt(segment, inputs)
        if isinstance(tried, Failure):
            return None
        agreement, reason = self._finder.check(segment, tried.outputs)
        return Culprit(segment.nodes, segment.platform, reason, agreement) if reason else None

    def _is_whole_cpu(self, plan: Plan) -> bool:
        """The whole model on the CPU's own kernels: right by definition, unless it gives NaN."""
        return len(plan.segments) == 1 and plan.segments[0].platform in self._trusted


def _p50_ms(timing: Timing | Failure) -> float | None:
    return None if isinstance(timing, Failure) else timing.p50_ms
