"""Throttled batches and drift: what is thrown away, what is taken out, what is left alone."""

from __future__ import annotations

import pytest

from edgeplace.measure.conditions import Sentinel, throttled_between, without_drift
from edgeplace.measure.statistics import timing_from


@pytest.mark.parametrize(
    ("before", "after", "throttled"),
    [
        ({"throttled": False}, {"throttled": False}, False),
        ({"throttled": False}, {"throttled": True}, True),
        ({"throttled": True}, {"throttled": False}, True),
        ({"throttled": None}, {"throttled": None}, False),
        ({"throttle_count": 3}, {"throttle_count": 3}, False),
        ({"throttle_count": 3}, {"throttle_count": 4}, True),
        ({"throttle_count": None}, {"throttle_count": 4}, False),
        ({}, {}, False),
    ],
)
def test_a_batch_throttled_when_the_board_says_so(
    before: dict[str, object], after: dict[str, object], throttled: bool
) -> None:
    assert throttled_between(before, after) is throttled


def test_the_first_placement_that_works_is_measured_again_when_it_is_due() -> None:
    times_ms = iter([10.0, 12.0, 10.2])
    sentinel = Sentinel(every=2)
    assert sentinel.drift() == 1.0  # nothing to compare with yet
    sentinel.adopt(10.0, lambda: next(times_ms))
    sentinel.adopt(99.0, lambda: 99.0)  # only the first one counts
    seen = [sentinel.drift() for _ in range(8)]
    # Looks after the 2nd, 5th and 8th measurement from here: unchanged, 20 % slower, 2 % slower (noise).
    assert seen == [1.0, 1.0, 1.0, 1.0, 1.2, 1.2, 1.2, 1.0]


def test_a_reference_that_fails_changes_nothing() -> None:
    sentinel = Sentinel(every=0)
    sentinel.adopt(10.0, lambda: None)
    assert [sentinel.drift(), sentinel.drift()] == [1.0, 1.0]


def test_drift_is_taken_out_of_every_time() -> None:
    timing = timing_from([2.4, 2.4, 2.4], segment_ms=(1.2,), handover_ms=(0.12,), prepare_ms=(7.0,))
    corrected = without_drift(timing, 1.2)
    assert corrected.p50_ms == pytest.approx(2.0)
    assert corrected.times_ms == pytest.approx((2.0, 2.0, 2.0))
    assert corrected.segment_ms == pytest.approx((1.0,))
    assert corrected.handover_ms == pytest.approx((0.1,))
    assert corrected.prepare_ms == (7.0,)
    assert without_drift(timing, 1.0) is timing
