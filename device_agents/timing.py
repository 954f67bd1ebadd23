"""Warm-up, repeats and the rule when to stop, for any callable. Pure: the clock is handed in."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Callable

import numpy as np

MAX_RAW_SAMPLES = 2000
"""Raw times that are kept and sent; more runs than that are not made."""
LEAST_RUNS = 3
"""Runs that are made however slow they are: a median of fewer says nothing."""
_TICK_NS = 1_000_000_000
_NORMAL_97_5 = 1.959964
_MAX_CORRELATION = 0.95


@dataclass(frozen=True)
class TimingPlan:
    """How long to measure. Warm-up runs are thrown away; repeats are all kept.

    Warm-up goes on until ``warmup_min_runs`` were made *and* ``warmup_min_s`` passed, or until ``budget_s`` is over.
    Repeats go on until ``min_runs`` were made and half the width of the median's 95 % interval is at most
    ``target_half_width`` of the median, or until ``max_runs`` or ``budget_s`` (counted anew) ends them; at least
    :data:`LEAST_RUNS` are made. The total number of runs is therefore at most ``max_runs`` plus the warm-up.

    Attributes:
        warmup_min_runs: Least number of warm-up runs.
        warmup_min_s: Least time of the warm-up in seconds.
        min_runs: Least number of repeats unless the budget ends.
        max_runs: Most repeats; capped at :data:`MAX_RAW_SAMPLES`.
        budget_s: Most time for the repeats in seconds, and for the warm-up.
        target_half_width: Share of the median (0.02 = 2 %).
    """

    warmup_min_runs: int = 3
    warmup_min_s: float = 0.05
    min_runs: int = 20
    max_runs: int = MAX_RAW_SAMPLES
    budget_s: float = 3.0
    target_half_width: float = 0.02

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
                raise ValueError(f"{field.name} is {value!r}, not a number")
            if value < 0:
                raise ValueError(f"{field.name} is {value!r}, below 0")
        if self.max_runs < 1 or self.min_runs > self.max_runs:
            raise ValueError(f"min_runs {self.min_runs} and max_runs {self.max_runs} do not fit each other")

    @classmethod
    def from_wire(cls, given: Mapping[str, Any]) -> TimingPlan:
        """The plan of a request; fields that are missing have their defaults.

        Raises:
            ValueError: A field is unknown or its value is no good.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(given) - names)
        if unknown:
            raise ValueError(f"timing has no field {', '.join(unknown)}")
        values = dict(given)
        if "max_runs" in values and isinstance(values["max_runs"], int):
            values["max_runs"] = min(values["max_runs"], MAX_RAW_SAMPLES)
            values.setdefault("min_runs", min(cls.min_runs, values["max_runs"]))
        return cls(**values)


@dataclass(frozen=True)
class TimedRuns:
    """What the repeats took, in milliseconds.

    Attributes:
        times_ms: Every repeat, in order.
        ci95_ms: 95 % interval of the median.
        noisy: The interval is wider than asked for.
        warmup_runs: Runs thrown away before.
    """

    times_ms: tuple[float, ...]
    p50_ms: float
    ci95_ms: tuple[float, float]
    min_ms: float
    p90_ms: float
    p99_ms: float
    noisy: bool
    warmup_runs: int


def time_runs(
    run: Callable[[], Any],
    plan: TimingPlan,
    *,
    clock_ns: Callable[[], int] = perf_counter_ns,
    tick: Callable[[str, int], None] = lambda stage, runs: None,
) -> TimedRuns:
    """Warm up, then repeat ``run`` until the plan says stop.

    Args:
        run: One run; its end is the end of what is measured.
        plan: When to stop.
        clock_ns: A monotonic clock in nanoseconds.
        tick: Called with ``warmup`` or ``timing`` and the number of runs so far, before the first run of each and
            then about once a second, always between runs.
    """
    warmup_runs = _warm_up(run, plan, clock_ns, tick)
    times_ns: list[int] = []
    started_ns = last_tick_ns = clock_ns()
    budget_ns = plan.budget_s * 1e9
    next_check = max(plan.min_runs, LEAST_RUNS)
    tick("timing", 0)
    while True:
        before_ns = clock_ns()
        run()
        now_ns = clock_ns()
        times_ns.append(now_ns - before_ns)
        count = len(times_ns)
        if count >= plan.max_runs or (now_ns - started_ns >= budget_ns and count >= LEAST_RUNS):
            break
        if count >= next_check:
            if half_width_share(times_ns) <= plan.target_half_width:
                break
            next_check = count + max(
                count // 4, 5
            )  # the check itself takes time; it grows rarer with the runs
        if now_ns - last_tick_ns >= _TICK_NS:
            last_tick_ns = now_ns
            tick("timing", count)
    times_ms = np.asarray(times_ns) / 1e6
    p50_ms, p90_ms, p99_ms = (float(value) for value in np.percentile(times_ms, (50, 90, 99)))
    return TimedRuns(
        times_ms=tuple(round(float(value), 6) for value in times_ms),
        p50_ms=p50_ms,
        ci95_ms=median_interval(times_ms),
        min_ms=float(times_ms.min()),
        p90_ms=p90_ms,
        p99_ms=p99_ms,
        noisy=half_width_share(times_ms) > plan.target_half_width,
        warmup_runs=warmup_runs,
    )


def _warm_up(
    run: Callable[[], Any], plan: TimingPlan, clock_ns: Callable[[], int], tick: Callable[[str, int], None]
) -> int:
    runs = 0
    started_ns = last_tick_ns = now_ns = clock_ns()
    tick("warmup", 0)
    while runs < plan.warmup_min_runs or now_ns - started_ns < plan.warmup_min_s * 1e9:
        run()
        runs += 1
        now_ns = clock_ns()
        if now_ns - started_ns >= plan.budget_s * 1e9:
            break
        if now_ns - last_tick_ns >= _TICK_NS:
            last_tick_ns = now_ns
            tick("warmup", runs)
    return runs


def median_interval(times: Any) -> tuple[float, float]:
    """The 95 % interval of the median of a series of run times, in the series' unit.

    This is the bootstrap percentile interval, without resampling: the median of a resample lies below ``x`` when at
    least half of its draws do, and the number of such draws is binomial, so the interval's ends are two quantiles of
    the series itself (Efron, "Bootstrap methods: another look at the jackknife", 1979, section 3). With the normal
    approximation they are the quantiles 0.5 +- 0.98 / sqrt(n). Runs that follow each other resemble each other, which
    plain resampling ignores; here ``n`` is the number of independent runs the series is worth, by its lag-1
    correlation around the median: n (1 - r) / (1 + r). The same series always gives the same interval.
    """
    values = np.asarray(times, dtype=np.float64)
    spread = 0.5 * _NORMAL_97_5 / math.sqrt(effective_runs(values))
    low, high = np.quantile(values, (max(0.0, 0.5 - spread), min(1.0, 0.5 + spread)))
    return float(low), float(high)


def effective_runs(times: Any) -> float:
    """The number of independent runs that a series is worth, at least 1."""
    values = np.asarray(times, dtype=np.float64)
    count = len(values)
    if count < 8:
        return float(max(count, 1))
    side = np.sign(values - np.median(values))  # signs: one outlier must not hide the correlation of the rest
    power = float(np.dot(side, side))
    correlation = float(np.dot(side[1:], side[:-1])) / power if power else 0.0
    correlation = min(max(correlation, 0.0), _MAX_CORRELATION)
    return max(1.0, count * (1.0 - correlation) / (1.0 + correlation))


def half_width_share(times: Any) -> float:
    """Half the width of the median's interval as a share of the median."""
    low, high = median_interval(times)
    median = float(np.median(np.asarray(times)))
    return (high - low) / 2.0 / median if median > 0 else 0.0
