"""The bench: what is measured, what is not measured again, and who is to blame. On a fake workbench."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from fake_workbench import FakeWorkbench, error_of_db, reference_of

from edgeplace.measure.bench import Bench, Recorder
from edgeplace.measure.conditions import SENTINEL_EVERY
from edgeplace.measure.measurement import Failure, Measurement
from edgeplace.measure.statistics import TimingPlan, timing_from
from edgeplace.measure.support import SupportFinder
from edgeplace.placement.plan import Placement
from edgeplace.testing.toy import toy_unit_graph

CRASH = Failure("crashed", "the worker was ended by SIGSEGV", "prepare", code=11)


class FakeRecorder:
    """Keeps records in memory and what happened in which order."""

    def __init__(self, workbench: FakeWorkbench, known: Mapping[str, Measurement] | None = None) -> None:
        self.known = dict(known or {})
        self.events: list[tuple[str, str, int]] = []
        self._workbench = workbench

    def lookup(self, plan_id: str) -> Measurement | None:
        return self.known.get(plan_id)

    def start(self, plan_id: str, placement: Placement) -> int:
        self.events.append(("start", plan_id, len(self._workbench.ran)))
        return 7

    def end(self, token: int, measurement: Measurement) -> None:
        assert token == 7
        self.known[measurement.plan_id] = measurement
        self.events.append(("end", measurement.plan_id, len(self._workbench.ran)))


def bench_on(
    workbench: FakeWorkbench,
    *,
    recorder: Recorder | None = None,
    trusted: frozenset[str] = frozenset({"cpu"}),
    strikes: Mapping[str, int] | None = None,
) -> Bench:
    numerics, tensors = reference_of(workbench.graph)
    return Bench(
        workbench,
        toy_unit_graph(len(workbench.graph.nodes)),
        numerics,
        tensors,
        TimingPlan(),
        SupportFinder(workbench, tensors, numerics.gate, trusted=trusted),
        trusted=trusted,
        recorder=recorder,
        strikes=strikes,
    )


def fake(**settings: object) -> FakeWorkbench:
    """A workbench for a chain of four nodes, each a unit of its own."""
    return FakeWorkbench(toy_unit_graph(4).graph, **settings)


def placed(text: str) -> Placement:
    return Placement(tuple(text.split()))


def test_a_placement_is_checked_then_timed_and_its_plan_is_never_run_again() -> None:
    workbench = fake()
    bench = bench_on(workbench)
    first = bench.measure(placed("cpu npu npu cpu"))
    assert first.p50_ms == 1.0
    assert first.agreement is not None
    assert first.agreement.snr_db == math.inf
    assert bench.measure(placed("cpu npu npu cpu")) == first
    plan_id = bench.plan(placed("cpu npu npu cpu")).id
    assert (workbench.ran, workbench.timed) == ([plan_id], [plan_id])
    assert bench.measured() == (first,)


def test_a_wrong_segment_among_several_is_named_and_not_run_again() -> None:
    workbench = fake(faults={(1, "npu"): 1.0})
    bench = bench_on(workbench)
    wrong = bench.measure(placed("cpu npu npu cpu")).failure
    assert wrong is not None
    assert (wrong.kind, wrong.segment, wrong.platform) == ("wrong_output", 1, "npu")
    assert "segment 1 alone on npu" in wrong.message
    (culprit,) = bench.culprits
    assert (culprit.nodes, culprit.platform) == ((1, 2), "npu")
    assert culprit.agreement is not None
    assert culprit.agreement.snr_db == pytest.approx(0.0)  # the error is as large as the signal
    assert workbench.timed == []

    ran = len(workbench.ran)
    again = bench.measure(placed("dsp npu npu cpu")).failure  # another plan with the same segment in it
    assert again is not None
    assert (again.kind, again.segment) == ("wrong_output", 1)
    assert len(workbench.ran) == ran
    assert bench.measure(placed("cpu cpu npu cpu")).failure is None


def test_the_only_segment_of_a_plan_is_to_blame_without_another_trial() -> None:
    workbench = fake(faults={(2, "npu"): 1.0})
    failure = bench_on(workbench).measure(placed("npu npu npu npu")).failure
    assert failure is not None
    assert (failure.kind, failure.segment, failure.platform) == ("wrong_output", 0, "npu")
    assert workbench.attempted == []


def test_errors_that_add_up_are_nobodys_fault() -> None:
    # 33 dB each is within the limit of 30 dB, two of them on top of each other are 27 dB.
    small = error_of_db(33)
    workbench = fake(faults={(0, "npu"): small, (2, "npu"): small})
    bench = bench_on(workbench)
    failure = bench.measure(placed("npu cpu npu cpu")).failure
    assert failure is not None
    assert (failure.kind, failure.segment) == ("wrong_output", None)
    assert "the errors add up" in failure.message
    assert bench.culprits == []
    assert bench.measure(placed("npu cpu cpu cpu")).failure is None


def test_a_segment_that_failed_twice_on_its_platform_is_not_tried_a_third_time() -> None:
    workbench = fake(faults={(1, "npu"): CRASH})
    bench = bench_on(workbench)
    placements = [
        placed(f"{first} npu npu {last}") for first, last in (("cpu", "cpu"), ("dsp", "cpu"), ("cpu", "dsp"))
    ]
    failures = [bench.measure(placement).failure for placement in placements]
    assert [(f.kind, f.segment, f.code) for f in failures if f is not None] == [("crashed", 1, 11)] * 3
    assert len(workbench.ran) == 2
    assert bench.measure(placed("cpu cpu npu cpu")).failure is None  # a shorter segment is another segment


def test_a_plan_during_which_the_host_died_twice_is_not_run() -> None:
    workbench = fake()
    plan_id = bench_on(workbench).plan(placed("cpu npu npu cpu")).id
    assert bench_on(workbench, strikes={plan_id: 1}).measure(placed("cpu npu npu cpu")).failure is None
    failure = bench_on(workbench, strikes={plan_id: 2}).measure(placed("cpu npu npu cpu")).failure
    assert failure is not None
    assert failure.kind == "agent_lost"
    assert workbench.ran == [plan_id]


def test_the_cpus_own_kernels_are_right_unless_they_give_nan() -> None:
    far = {(1, "cpu"): 1.0}
    assert bench_on(fake(faults=far)).measure(placed("cpu cpu cpu cpu")).failure is None
    failure = bench_on(fake(faults=far), trusted=frozenset()).measure(placed("cpu cpu cpu cpu")).failure
    assert failure is not None
    assert failure.kind == "wrong_output"
    nan = {(1, "cpu"): np.nan}
    assert bench_on(fake(faults=nan)).measure(placed("cpu cpu cpu cpu")).failure is not None


def test_a_batch_that_throttled_is_timed_again() -> None:
    cool, hot = {"throttled": False}, {"throttled": True}
    workbench = fake(healths=[cool, hot, cool, cool])
    measurement = bench_on(workbench).measure(placed("cpu cpu cpu cpu"))
    assert len(workbench.timed) == 2
    assert measurement.health["throttled_meanwhile"] is False


def test_a_board_that_throttles_all_the_time_is_measured_as_it_is_and_the_record_says_so() -> None:
    workbench = fake(healths=[{"throttled": True}])
    measurement = bench_on(workbench).measure(placed("cpu cpu cpu cpu"))
    assert len(workbench.timed) == 3
    assert measurement.p50_ms == 1.0
    assert measurement.health["throttled_meanwhile"] is True


def test_a_start_is_recorded_before_a_run_and_an_end_before_the_next() -> None:
    workbench = fake()
    recorder = FakeRecorder(workbench)
    bench = bench_on(workbench, recorder=recorder)
    first, second = placed("cpu npu npu cpu"), placed("cpu cpu cpu cpu")
    bench.measure(first)
    bench.measure(second)
    ids = [bench.plan(placement).id for placement in (first, second)]
    assert recorder.events == [
        ("start", ids[0], 0),
        ("end", ids[0], 1),
        ("start", ids[1], 1),
        ("end", ids[1], 2),
    ]


def test_what_is_recorded_is_not_measured_again_and_its_failures_count() -> None:
    first = fake(faults={(1, "npu"): CRASH})
    recorder = FakeRecorder(first)
    bench_on(first, recorder=recorder).measure(placed("cpu npu npu cpu"))

    resumed = fake(faults={(1, "npu"): CRASH})
    bench = bench_on(resumed, recorder=FakeRecorder(resumed, recorder.known))
    assert bench.measure(placed("cpu npu npu cpu")).failure is not None
    assert resumed.ran == []
    bench.measure(placed("dsp npu npu cpu"))
    bench.measure(placed("cpu npu npu dsp"))
    assert len(resumed.ran) == 1  # one strike from the records, one from here


def test_drift_is_taken_out_of_what_is_given_and_left_in_what_is_recorded() -> None:
    workbench = fake()
    recorder = FakeRecorder(workbench)
    bench = bench_on(workbench, recorder=recorder)
    steady = placed("cpu cpu cpu cpu")
    assert bench.measure(steady).p50_ms == 1.0
    names = [
        f"{a} {b} {c} cpu" for a in ("cpu", "npu") for b in ("cpu", "npu") for c in ("cpu", "npu", "dsp")
    ][1:]
    for name in names[: SENTINEL_EVERY - 1]:
        assert bench.measure(placed(name)).p50_ms == 1.0
    # From now on the board takes 1.5 times as long for everything.
    late = placed(names[SENTINEL_EVERY - 1])
    workbench.p50_ms = {bench.plan(placement).id: 1.5 for placement in (steady, late)}
    assert bench.measure(late).p50_ms == pytest.approx(1.0)
    assert recorder.known[bench.plan(late).id].p50_ms == 1.5


def test_a_recorded_time_of_another_run_has_its_own_drift_taken_out() -> None:
    workbench = fake()
    placement = placed("cpu cpu cpu cpu")
    plan_id = bench_on(workbench).plan(placement).id
    recorded = Measurement(placement.id, plan_id, timing=timing_from([3.0] * 5), health={"drift": 1.5})
    bench = bench_on(workbench, recorder=FakeRecorder(workbench, {plan_id: recorded}))
    assert bench.measure(placement).p50_ms == pytest.approx(2.0)
