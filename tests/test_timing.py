from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from device_agents.timing import (
    LEAST_RUNS,
    MAX_RAW_SAMPLES,
    TimingPlan,
    effective_runs,
    half_width_share,
    median_interval,
    time_runs,
)

MS = 1_000_000


class FakeMachine:
    """A clock that only moves when something runs; each run takes the next of the given durations."""

    def __init__(self, durations_ms: Iterable[float]) -> None:
        self.now_ns = 0
        self.runs = 0
        self._durations = iter(durations_ms)

    def clock_ns(self) -> int:
        return self.now_ns

    def run(self) -> None:
        self.runs += 1
        self.now_ns += round(next(self._durations) * MS)


def forever(value: Callable[[int], float]) -> Iterable[float]:
    number = 0
    while True:
        yield value(number)
        number += 1


def steady(_: int) -> float:
    return 2.0


def test_steady_runs_stop_at_the_least_number() -> None:
    machine = FakeMachine(forever(steady))
    timed = time_runs(
        machine.run, TimingPlan(warmup_min_runs=4, warmup_min_s=0.0, min_runs=20), clock_ns=machine.clock_ns
    )
    assert (timed.warmup_runs, len(timed.times_ms), machine.runs) == (4, 20, 24)
    assert (timed.p50_ms, timed.ci95_ms, timed.min_ms, timed.p99_ms) == (2.0, (2.0, 2.0), 2.0, 2.0)
    assert not timed.noisy


def test_warm_up_needs_both_runs_and_time() -> None:
    machine = FakeMachine(forever(steady))
    timed = time_runs(
        machine.run, TimingPlan(warmup_min_runs=3, warmup_min_s=0.1, min_runs=5), clock_ns=machine.clock_ns
    )
    assert timed.warmup_runs == 50  # 100 ms at 2 ms each


def test_slow_warm_up_runs_are_not_in_the_times() -> None:
    machine = FakeMachine(forever(lambda n: 50.0 if n < 3 else 1.0))
    timed = time_runs(
        machine.run, TimingPlan(warmup_min_runs=3, warmup_min_s=0.0, min_runs=5), clock_ns=machine.clock_ns
    )
    assert set(timed.times_ms) == {1.0}


def test_a_noisy_series_goes_on_until_the_budget_ends_and_says_so() -> None:
    machine = FakeMachine(forever(lambda n: 1.0 if n % 2 else 3.0))
    plan = TimingPlan(warmup_min_runs=0, warmup_min_s=0.0, min_runs=10, budget_s=0.4)
    timed = time_runs(machine.run, plan, clock_ns=machine.clock_ns)
    assert timed.noisy
    assert 200 <= len(timed.times_ms) <= 201


def test_spread_series_stops_when_the_median_is_known_well_enough() -> None:
    generator = np.random.default_rng(0)
    durations = generator.normal(10.0, 1.0, 5000)
    machine = FakeMachine(durations)
    plan = TimingPlan(warmup_min_runs=0, warmup_min_s=0.0, min_runs=10, budget_s=1000.0)
    timed = time_runs(machine.run, plan, clock_ns=machine.clock_ns)
    assert not timed.noisy
    assert 20 < len(timed.times_ms) < 1000
    assert half_width_share(timed.times_ms) <= 0.02


def test_never_more_than_the_cap_of_raw_samples() -> None:
    machine = FakeMachine(forever(lambda n: 1.0 if n % 2 else 3.0))
    plan = TimingPlan.from_wire({"warmup_min_runs": 0, "max_runs": 10**9, "budget_s": 10**6})
    assert len(time_runs(machine.run, plan, clock_ns=machine.clock_ns).times_ms) == MAX_RAW_SAMPLES


def test_a_model_slower_than_the_budget_still_gets_the_least_runs() -> None:
    machine = FakeMachine(forever(lambda n: 60_000.0))
    timed = time_runs(machine.run, TimingPlan(budget_s=1.0), clock_ns=machine.clock_ns)
    assert (timed.warmup_runs, len(timed.times_ms)) == (1, LEAST_RUNS)


def test_ticks_come_before_each_stage_and_once_a_second() -> None:
    machine = FakeMachine(forever(lambda n: 400.0 if n % 2 else 1200.0))
    ticks: list[tuple[str, int]] = []
    plan = TimingPlan(warmup_min_runs=2, warmup_min_s=0.0, min_runs=3, budget_s=8.0)
    time_runs(machine.run, plan, clock_ns=machine.clock_ns, tick=lambda stage, n: ticks.append((stage, n)))
    assert ticks[:2] == [("warmup", 0), ("warmup", 1)]
    assert ("timing", 0) in ticks
    assert 3 <= sum(stage == "timing" for stage, _ in ticks) <= 9


@pytest.mark.parametrize(
    "given",
    [{"runs": 3}, {"min_runs": -1}, {"budget_s": float("nan")}, {"min_runs": "7"}, {"max_runs": 0}, {"min_runs": True}],
)  # fmt: skip
def test_a_bad_plan_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        TimingPlan.from_wire(given)


def test_a_plan_from_the_wire_keeps_every_field() -> None:
    plan = TimingPlan(
        warmup_min_runs=1, warmup_min_s=0.5, min_runs=7, max_runs=70, budget_s=2.0, target_half_width=0.05
    )
    assert TimingPlan.from_wire(dataclasses.asdict(plan)) == plan
    assert TimingPlan.from_wire({"max_runs": 4}).min_runs == 4


def test_the_interval_covers_the_true_median_about_95_times_in_100() -> None:
    generator = np.random.default_rng(1)
    hits = 0
    for _ in range(1000):
        low, high = median_interval(generator.lognormal(0.0, 0.2, 60))
        hits += low <= 1.0 <= high
    assert 930 <= hits <= 980


def test_correlated_runs_get_a_wider_interval() -> None:
    generator = np.random.default_rng(2)
    noise = generator.normal(0, 1, 400)
    slow = np.convolve(noise, np.ones(12) / 12, mode="same")  # each run resembles its neighbours
    assert effective_runs(10 + slow) < 80
    assert effective_runs(10 + noise) > 250
    low, high = median_interval(10 + slow)
    plain_low, plain_high = np.quantile(10 + slow, (0.5 - 0.98 / 20, 0.5 + 0.98 / 20))
    assert high - low > 1.5 * (plain_high - plain_low)


def test_the_interval_of_few_or_equal_times_is_their_range() -> None:
    assert median_interval([5.0]) == (5.0, 5.0)
    assert median_interval([1.0, 2.0]) == (1.0, 2.0)
    assert median_interval([3.0] * 50) == (3.0, 3.0)
