"""A fake workbench: plans of a toy graph run by adding up, without an agent, a model file or a runtime.

What goes wrong is written down beforehand, so that the rules about it can be tested one at a time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from edgeplace.boards import PlatformProfile, platform_spec
from edgeplace.graph.graph import Graph
from edgeplace.measure.agreement import EXACT, Floor, Gate, Limit
from edgeplace.measure.board import LiveBoard, LivePlatform
from edgeplace.measure.inputs import InputSet
from edgeplace.measure.measurement import Failure, Timing
from edgeplace.measure.numerics import Numerics
from edgeplace.measure.reference import REFERENCE, ReferenceChoice
from edgeplace.measure.statistics import TimingPlan, timing_from
from edgeplace.measure.workbench import Attempt, RunOutputs
from edgeplace.placement.plan import Plan, Segment

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class FakeFile:
    """Stands for a segment's file; only its hash is asked for."""

    sha256: str


@dataclass
class FakeWorkbench:
    """Stands for a :class:`~edgeplace.measure.workbench.Workbench`. A node's output is the sum of what it reads.

    Attributes:
        faults: (node, platform) -> what the node does there: a failure, or a number added to its output.
        runs_elsewhere: (node, platform) pairs whose segments the runtime takes and runs on the CPU instead.
        p50_ms: Plan id -> time; 1 ms for the others.
        healths: What the board says of itself, one answer after the other; the last one stays.
        ran: Ids of the plans that were run for their outputs, in order.
        timed: Ids of the plans that were timed, in order.
        attempted: (nodes, platform) of the segments that were tried alone, in order.
        broken_in_final: Ids of the plans that do not run any more once the final has begun.
    """

    graph: Graph
    faults: Mapping[tuple[int, str], Failure | float] = field(default_factory=dict)
    runs_elsewhere: frozenset[tuple[int, str]] = frozenset()
    p50_ms: dict[str, float] = field(default_factory=dict)
    healths: list[Mapping[str, object]] = field(default_factory=lambda: [{}])
    ran: list[str] = field(default_factory=list)
    timed: list[str] = field(default_factory=list)
    attempted: list[tuple[tuple[int, ...], str]] = field(default_factory=list)
    broken_in_final: set[str] = field(default_factory=set)
    _final_began: bool = False

    @property
    def model(self) -> SimpleNamespace:
        """As much of a model as stands in a delegate map."""
        return SimpleNamespace(
            name=self.graph.model_name,
            sha256=self.graph.model_sha256,
            subgraphs=(SimpleNamespace(tensors=self.graph.tensors),),
        )

    def add_platform(self, name: str, spec: Mapping[str, object]) -> None:
        """Every platform can be used already."""

    def run(self, plan: Plan, samples: Sequence[Sequence[Array]], **_: object) -> RunOutputs | Failure:
        """The graph's outputs for each sample, or the failure of the first segment that has one."""
        self.ran.append(plan.id)
        if self._final_began and plan.id in self.broken_in_final:
            return Failure("device_gone", "it was there a minute ago")
        rows = []
        for sample in samples:
            tensors = dict(zip(self.graph.inputs, sample, strict=True))
            for segment in plan.segments:
                failure = self._run_segment(segment, tensors)
                if failure is not None:
                    return replace(failure, segment=segment.id)
            rows.append(tuple(tensors[tensor] for tensor in self.graph.outputs))
        return RunOutputs(tuple(rows), ran_on=tuple(segment.platform for segment in plan.segments))

    def measure(
        self, plan: Plan, sample: Sequence[Array], timing: TimingPlan, **_: object
    ) -> Timing | Failure:
        """The time written down for the plan."""
        self.timed.append(plan.id)
        return timing_from([self.p50_ms.get(plan.id, 1.0)] * 5)

    def interleave(
        self, plans: Sequence[tuple[Plan, bool]], sample: Sequence[Array], *, rounds: int, runs_per_round: int
    ) -> list[list[list[float]]] | Failure:
        """The times written down for the plans, the same in every round."""
        self._final_began = True
        if any(plan.id in self.broken_in_final for plan, _ in plans):
            return Failure("device_gone", "it was there a minute ago")
        return [[[self.p50_ms.get(plan.id, 1.0)] * runs_per_round] * rounds for plan, _ in plans]

    def attempt(self, segment: Segment, inputs: Sequence[Array | None]) -> Attempt | Failure:
        """The segment alone; inputs that are not given are ones."""
        self.attempted.append((segment.nodes, segment.platform))
        tensors = {
            tensor: np.ones(self.graph.tensors[tensor].shape, np.float32) if array is None else array
            for tensor, array in zip(segment.inputs, inputs, strict=True)
        }
        failure = self._run_segment(segment, tensors)
        if failure is not None:
            return failure
        elsewhere = any((node, segment.platform) in self.runs_elsewhere for node in segment.nodes)
        outputs = tuple(tensors[tensor] for tensor in segment.outputs)
        return Attempt(outputs, 0.5, not elsewhere, "cpu" if elsewhere else segment.platform)

    def health(self) -> Mapping[str, object]:
        """The next of the answers written down."""
        return self.healths.pop(0) if len(self.healths) > 1 else self.healths[0]

    def file_of(self, segment: Segment) -> FakeFile:
        """A file whose hash names the nodes."""
        return FakeFile(hashlib.sha256(repr(segment.nodes).encode()).hexdigest())

    def _run_segment(self, segment: Segment, tensors: dict[int, Array]) -> Failure | None:
        for number in segment.nodes:
            fault = self.faults.get((number, segment.platform), 0.0)
            if isinstance(fault, Failure):
                return replace(fault, platform=segment.platform)
            node = self.graph.nodes[number]
            value = sum(float(tensors[tensor].flat[0]) for tensor in node.inputs) + fault
            for tensor in node.outputs:
                tensors[tensor] = np.full(self.graph.tensors[tensor].shape, value, np.float32)
        return None


def fake_board(*platforms: str) -> LiveBoard:
    """A board that says it has these platforms; nothing can be run on it."""
    profile = PlatformProfile(kind="cpu", loader="interpreter")
    return LiveBoard(
        SimpleNamespace(name="toy"),
        SimpleNamespace(),
        SimpleNamespace(runtimes={"litert": "2.3.0"}, fingerprint={"machine": "toy"}, python="3.11"),
        {name: LivePlatform(name, profile, platform_spec(name, profile), {}) for name in platforms},
        {},
    )


def reference_of(graph: Graph) -> tuple[Numerics, dict[int, Array]]:
    """What is right for a toy graph on one sample of ones, and every tensor on the way."""
    sample = tuple(np.ones(graph.tensors[tensor].shape, np.float32) for tensor in graph.inputs)
    tensors = dict(zip(graph.inputs, sample, strict=True))
    everything = Segment(0, "reference", graph.order, (), graph.inputs, graph.outputs, ())
    assert FakeWorkbench(graph)._run_segment(everything, tensors) is None
    outputs = tuple(tensors[tensor] for tensor in graph.outputs)
    numerics = Numerics(
        choice=ReferenceChoice(REFERENCE),
        inputs=InputSet.of([sample], "ones"),
        expected=(outputs,),
        floor=Floor(EXACT, ("reference",), 8, tuple(1.0 for _ in outputs)),
        gate=Gate(Limit()),
        graph=graph,
    )
    return numerics, tensors


def error_of_db(snr_db: float) -> float:
    """What to add to ones for that signal-to-noise ratio."""
    return math.pow(10.0, -snr_db / 20)
