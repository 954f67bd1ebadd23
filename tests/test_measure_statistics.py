"""Medians, intervals, paired ratios and timings: values worked out by hand, and coverage on seeded noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeplace.errors import InputError
from edgeplace.measure.statistics import (
    TimingPlan,
    block_length,
    median_interval,
    paired_ratio,
    round_medians,
    timing_from,
)


def test_timing_of_ten_runs_has_the_values_worked_out_by_hand() -> None:
    timing = timing_from([10, 1, 2, 3, 4, 5, 6, 7, 8, 9], segment_ms=[1, 2], first_run_ms=30)
    assert timing.p50_ms == 5.5
    assert timing.min_ms == 1
    assert timing.p90_ms == pytest.approx(9.1)
    assert timing.p99_ms == pytest.approx(9.91)
    assert timing.times_ms[0] == 10
    assert timing.segment_ms == (1.0, 2.0)
    assert timing.first_run_ms == 30
    assert timing.noisy


def test_equal_times_have_an_interval_without_width_and_are_not_noisy() -> None:
    timing = timing_from([2.0] * 20)
    assert timing.ci95_ms == (2.0, 2.0)
    assert not timing.noisy


def test_one_time_is_its_own_interval() -> None:
    assert median_interval([3.0]) == (3.0, 3.0)


def test_what_the_agent_found_noisy_stays_so() -> None:
    assert timing_from([2.0] * 20, noisy=True).noisy


def test_the_same_times_give_the_same_interval() -> None:
    times = np.random.default_rng(1).normal(10, 1, 50)
    assert median_interval(times) == median_interval(list(times))


@pytest.mark.parametrize("times", [[], [1.0, math.nan], [1.0, math.inf]])
def test_times_without_a_median_are_refused(times: list[float]) -> None:
    with pytest.raises(ValueError, match="value"):
        timing_from(times)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    times=st.lists(st.floats(0.01, 1e4), min_size=1, max_size=60),
    factor=st.sampled_from([0.25, 2.0, 1024.0]),
)
def test_interval_lies_within_the_times_and_scales_with_them(times: list[float], factor: float) -> None:
    low, high = median_interval(times)
    assert min(times) <= low <= high <= max(times)
    scaled = median_interval([value * factor for value in times])
    assert scaled == pytest.approx((low * factor, high * factor))


def test_long_series_is_resampled_in_chunks_with_the_same_meaning() -> None:
    times = np.random.default_rng(2).normal(10, 1, 20_000)
    low, high = median_interval(times, block=1)
    # Half width of the median of n normal values: 1.96 * 1.2533 / sqrt(n).
    bootstrap = 1.96 * 1.2533 / math.sqrt(20_000)
    assert 0.9 * bootstrap <= (high - low) / 2 <= 2 * bootstrap
    assert low < 10 < high


def test_independent_values_have_short_blocks_and_dependent_ones_long() -> None:
    rng = np.random.default_rng(3)
    independent = rng.normal(0, 1, 400)
    wandering = np.cumsum(rng.normal(0, 1, 400))
    assert block_length(independent) <= 4
    assert block_length(wandering) == 100
    assert block_length([1.0] * 50) == 1
    assert block_length([1.0, 2.0, 3.0]) == 1


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_interval_covers_the_true_median_of_autocorrelated_values(correlation: float) -> None:
    rng = np.random.default_rng(4)
    series, length = 400, 200
    values = np.empty((series, length))
    values[:, 0] = rng.normal(0, 1, series)
    for step in range(1, length):
        values[:, step] = correlation * values[:, step - 1] + rng.normal(
            0, math.sqrt(1 - correlation**2), series
        )
    covered = sum(low <= 0 <= high for low, high in map(median_interval, values)) / series
    assert covered >= 0.90


def test_mood_that_lasts_for_batches_widens_the_interval() -> None:
    """Six batches of ten whose medians are 1, 2, 3, 4, 5, 6: mean square step 3.5, t(5) = 2.571 at 95 %."""
    values = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 10)
    half_width = 2.5706 * math.sqrt(3.5) / math.sqrt(6)
    low, high = median_interval(values, block=1)
    assert (low, high) == pytest.approx((3.5 - half_width, 3.5 + half_width), abs=1e-3)


def test_round_medians_take_rounds_of_any_length() -> None:
    assert round_medians([[1, 9, 2], [4], [1, 3]]).tolist() == [2, 4, 2]
    assert round_medians([[1, 9, 2], [4, 6, 5]]).tolist() == [2, 5]
    with pytest.raises(ValueError, match="no run"):
        round_medians([[1.0], []])


def test_paired_ratio_is_the_median_of_the_rounds_ratios() -> None:
    found = paired_ratio([[1.0], [3.0], [8.0]], [[2.0], [4.0], [8.0]])
    assert found.ratio == pytest.approx(0.75)
    assert found.rounds == 3
    assert found.low == pytest.approx(0.5)
    assert found.high == pytest.approx(1.0)


def test_what_slows_both_plans_cancels() -> None:
    speed = np.repeat([1.0, 1.3, 1.0, 1.7], 10)
    found = paired_ratio((0.9 * speed)[:, None], speed[:, None])
    assert (found.ratio, found.low, found.high) == pytest.approx((0.9, 0.9, 0.9))


def test_drift_within_a_round_is_taken_out() -> None:
    moments = np.arange(80).reshape(40, 2)
    times = np.exp(0.005 * moments)  # 0.5 % slower with each slot; both plans are equal
    plain = paired_ratio(times[:, :1], times[:, 1:])
    corrected = paired_ratio(times[:, :1], times[:, 1:], lag_rounds=-0.5)
    swapped = paired_ratio(times[:, 1:], times[:, :1], lag_rounds=0.5)
    assert plain.ratio == pytest.approx(math.exp(-0.005))
    assert corrected.ratio == pytest.approx(1.0)
    assert swapped.ratio == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("first", "second"), [([[1.0]], [[1.0], [2.0]]), ([], []), ([[0.0]], [[1.0]]), ([[-1.0]], [[1.0]])]
)
def test_rounds_that_do_not_pair_are_refused(first: list[list[float]], second: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"paired|above 0"):
        paired_ratio(first, second)


def test_timing_plan_goes_on_the_wire_by_its_field_names() -> None:
    assert TimingPlan(min_runs=5).to_wire() == {
        "warmup_min_runs": 3,
        "warmup_min_s": 0.1,
        "min_runs": 5,
        "max_runs": 1000,
        "budget_s": 2.0,
        "target_half_width": 0.02,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_runs": 0},
        {"min_runs": 10, "max_runs": 5},
        {"warmup_min_runs": -1},
        {"warmup_min_s": -0.1},
        {"budget_s": 0},
        {"budget_s": math.nan},
        {"budget_s": math.inf},
        {"target_half_width": 0},
        {"target_half_width": 1.5},
    ],
)
def test_timing_plan_that_cannot_be_run_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        TimingPlan(**wrong)  # type: ignore[arg-type]
