"""Plans of one model on one board: cut, sent, run, timed. What foreign code does wrong comes back as a value."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from edgeplace.agent_client import AgentClient, AgentFailure, AgentLost, ArrayBlob, MeasureResult, wire_plan
from edgeplace.graph.graph import Graph
from edgeplace.measure.measurement import Failure, Timing
from edgeplace.measure.statistics import TimingPlan, timing_from
from edgeplace.placement.plan import Plan, Segment, Source
from edgeplace.placement.segments import SegmentCutter
from edgeplace.tflite.original import original_file
from edgeplace.tflite.reader import Model
from edgeplace.tflite.segment_file import SegmentFile

LOG = logging.getLogger(__name__)

Array = npt.NDArray[Any]
Sample = Sequence[Array]
Result = TypeVar("Result")


ATTEMPT_TIMING = TimingPlan(warmup_min_runs=1, warmup_min_s=0.0, min_runs=3, max_runs=50, budget_s=0.05)
"""How a unit alone is timed: enough to rank platforms, short enough for every unit on every platform."""


@dataclass(frozen=True)
class Deadlines:
    """How long foreign code may take before it counts as hung, in seconds.

    ``prepare_s`` is for loading and compiling one segment (a cold NPU compile is not a hang), ``run_s`` for one run
    of a plan.
    """

    prepare_s: float = 120.0
    run_s: float = 30.0

    @classmethod
    def of_run(cls, run_s: float) -> Deadlines:
        """Deadlines from that of a run: compiling may take four times as long."""
        return cls(prepare_s=4 * run_s, run_s=run_s)

    @property
    def stage_s(self) -> float:
        """Longest silence between two signs of progress."""
        return self.prepare_s + self.run_s


@dataclass(frozen=True)
class RunOutputs:
    """What a plan gave: per sample the graph outputs, and per sample every tensor that crossed a cut.

    ``ran_on`` and ``accelerated`` say for each segment what really ran it, and whether that was all of it on the platform's
    own hardware (``None`` on a CPU).
    """

    outputs: tuple[tuple[Array, ...], ...]
    intermediates: tuple[Mapping[int, Array], ...] = ()
    ran_on: tuple[str, ...] = ()
    accelerated: tuple[bool | None, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """What one segment gave alone on a platform."""

    outputs: tuple[Array, ...]
    time_ms: float | None
    accelerated: bool | None
    ran_on: str


def whole_plan(graph: Graph, platform: str) -> Plan:
    """The whole graph as one segment on one platform."""
    segment = Segment(
        id=0,
        platform=platform,
        nodes=tuple(graph.order),
        units=(),
        inputs=graph.inputs,
        outputs=graph.outputs,
        sources=tuple(Source("input", index) for index in range(len(graph.inputs))),
    )
    return Plan((segment,), tuple(Source("segment", 0, index) for index in range(len(graph.outputs))))


class Workbench:
    """Runs plans of one model on one board through its agent.

    Args:
        agent: A connected agent; a lost one is started again once per call.
        platforms: Platform name -> its spec on the wire. More may be added with :meth:`add_platform`.
    """

    def __init__(
        self,
        agent: AgentClient,
        model: Model,
        graph: Graph,
        cutter: SegmentCutter,
        platforms: Mapping[str, Mapping[str, Any]],
        deadlines: Deadlines | None = None,
    ) -> None:
        self.agent = agent
        self.model = model
        self.graph = graph
        self.cutter = cutter
        self.deadlines = deadlines or Deadlines()
        self._platforms = {name: dict(spec) for name, spec in platforms.items()}
        self._original: SegmentFile | None = None

    def add_platform(self, name: str, spec: Mapping[str, Any]) -> None:
        """Make a platform usable in plans (the reference kernels, a default with fallback, ...)."""
        self._platforms[name] = {**spec, "name": name}

    def run(
        self, plan: Plan, samples: Sequence[Sample], *, original: bool = False, intermediates: bool = False
    ) -> RunOutputs | Failure:
        """Run a plan once per sample, from a fresh state, the samples one after the other.

        Args:
            original: The plan is :func:`whole_plan` and the file as the user gave it is to be run, not a cut.
            intermediates: Give every tensor that crosses a cut too.
        """
        deadline_s = self._deadline_s(plan, len(samples))

        def call() -> RunOutputs:
            wire = self._wire(plan, original)
            result = self.agent.run(
                wire,
                [self.agent.ensure_arrays(list(sample)) for sample in samples],
                intermediates=intermediates,
                deadline_s=deadline_s,
                stage_deadline_s=self.deadlines.stage_s,
            )
            return RunOutputs(
                result.outputs,
                tuple(_by_tensor(plan, tensors) for tensors in result.intermediates),
                result.ran_on,
                result.accelerated,
            )

        return self._retrying(call)

    def measure(
        self, plan: Plan, sample: Sample, timing: TimingPlan, *, original: bool = False
    ) -> Timing | Failure:
        """Time a plan in steady state on one sample."""
        deadline_s = self._deadline_s(plan, 1) + timing.warmup_min_s + 20 * timing.budget_s

        def call() -> Timing:
            result = self.agent.measure(
                self._wire(plan, original),
                [self.agent.ensure_arrays(list(sample))],
                timing.to_wire(),
                deadline_s=deadline_s,
                stage_deadline_s=self.deadlines.stage_s + 20 * timing.budget_s,
            )
            return _timing_of(result, timing)

        return self._retrying(call)

    def interleave(
        self, plans: Sequence[tuple[Plan, bool]], sample: Sample, *, rounds: int, runs_per_round: int
    ) -> list[list[list[float]]] | Failure:
        """Time several plans in rounds, A B A B: ``times_ms[plan][round][run]``.

        Args:
            plans: (plan, whether it is the original file) pairs.
        """
        runs = rounds * runs_per_round
        deadline_s = sum(self._deadline_s(plan, 1) for plan, _ in plans) + runs * len(plans) * 2.0

        def call() -> list[list[list[float]]]:
            wires = [self._wire(plan, original) for plan, original in plans]
            result = self.agent.interleave(
                wires,
                [self.agent.ensure_arrays(list(sample))],
                rounds=rounds,
                runs_per_round=runs_per_round,
                deadline_s=deadline_s,
                stage_deadline_s=self.deadlines.stage_s * len(plans),
            )
            return [[list(runs_ms) for runs_ms in of_plan] for of_plan in result.times_ms]

        return self._retrying(call)

    def attempt(self, segment: Segment, inputs: Sequence[Array | None]) -> Attempt | Failure:
        """Compile one segment alone on its platform, run it once, time it shortly.

        Args:
            inputs: One array per segment input; the agent makes up those that are ``None``.
        """
        deadline_s = self.deadlines.prepare_s + self.deadlines.run_s

        def call() -> Attempt:
            given = [None if array is None else self.agent.ensure_arrays([array])[0] for array in inputs]
            result = self.agent.try_segment(
                self._platforms[segment.platform],
                self.cutter.file(segment),
                given,
                timing=ATTEMPT_TIMING.to_wire(),
                deadline_s=deadline_s,
            )
            time_ms = float(np.median(result.times_ms)) if result.times_ms else None
            return Attempt(result.outputs, time_ms, result.accelerated, result.ran_on)

        return self._retrying(call)

    def health(self) -> Mapping[str, object]:
        """Governor, frequency, temperature, throttling and load of the board now."""
        return self.agent.health()

    def file_of(self, segment: Segment) -> SegmentFile:
        """The segment's stand-alone file."""
        return self.cutter.file(segment)

    def original_file(self) -> SegmentFile:
        """The model file as the user gave it, as a recipe: its constants are the ones the segments use."""
        if self._original is None:
            self._original = original_file(self.model)
        return self._original

    def _wire(self, plan: Plan, original: bool) -> dict[str, Any]:
        files = {
            segment.id: self.original_file() if original else self.cutter.file(segment)
            for segment in plan.segments
        }
        self.agent.ensure_segments(files.values())
        constants: dict[int, ArrayBlob] = {}
        for tensor, array in self.cutter.constants(plan).items():
            (constants[tensor],) = self.agent.ensure_arrays([array])
        return wire_plan(plan, files, self._platforms, constants)

    def _deadline_s(self, plan: Plan, runs: int) -> float:
        return len(plan.segments) * self.deadlines.prepare_s + max(1, runs) * self.deadlines.run_s

    def _retrying(self, call: Callable[[], Result]) -> Result | Failure:
        """Do it; foreign failures become values, an agent that died is started once more."""
        try:
            return call()
        except AgentFailure as failure:
            return failure_of(failure)
        except AgentLost as error:
            LOG.warning("the agent was lost (%s); it is started again", error.message)
        self.agent.reconnect()
        try:
            return call()
        except AgentFailure as failure:
            return failure_of(failure)
        except AgentLost as error:
            self.agent.reconnect()
            return Failure("agent_lost", error.message)


def failure_of(failure: AgentFailure) -> Failure:
    """The agent's words for what foreign code did, as a value."""
    return Failure(
        failure.kind,
        failure.message,
        stage=failure.stage,
        segment=failure.segment,
        platform=failure.platform,
        code=failure.code,
    )


def _by_tensor(plan: Plan, arrays: Sequence[Array]) -> dict[int, Array]:
    """Every segment output, segment by segment, by tensor number."""
    tensors = [tensor for segment in plan.segments for tensor in segment.outputs]
    return dict(zip(tensors, arrays, strict=True))


def _timing_of(result: MeasureResult, timing: TimingPlan) -> Timing:
    return timing_from(
        result.times_ms,
        segment_ms=result.segment_ms,
        handover_ms=result.handover_ms,
        prepare_ms=result.prepare_ms,
        first_run_ms=result.first_run_ms,
        target_half_width=timing.target_half_width,
        noisy=result.noisy,
    )
