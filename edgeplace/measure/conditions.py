"""Is the board today what it was when the search began? Throttled batches are thrown away, drift is taken out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from edgeplace.measure.measurement import Timing

SENTINEL_EVERY = 8
"""The reference placement is measured again after this many measurements."""
DRIFT_THAT_COUNTS = 0.05
"""A change of the reference placement smaller than this is noise, and nothing is corrected."""
THROTTLED_ATTEMPTS = 3
"""A batch that throttled is measured again up to this many times; then it stands, and says that it throttled."""


def throttled_between(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Whether the board slowed itself down while something was measured, as far as it says."""
    if before.get("throttled") or after.get("throttled"):
        return True
    counts = before.get("throttle_count"), after.get("throttle_count")
    return isinstance(counts[0], int) and isinstance(counts[1], int) and counts[1] > counts[0]


class Sentinel:
    """A reference placement that is measured again now and then; how its time changed is the board's drift.

    The final is interleaved and needs no such correction. The search does: its samples lie minutes apart, and a board that
    got 20 % slower would make everything measured late look bad.

    Args:
        every: Measurements between two looks at the reference placement.
    """

    def __init__(self, every: int = SENTINEL_EVERY) -> None:
        self._every = every
        self._first_ms: float | None = None
        self._measure_ms: Callable[[], float | None] | None = None
        self._since = 0
        self._drift = 1.0

    def adopt(self, p50_ms: float, measure_ms: Callable[[], float | None]) -> None:
        """The first placement that works becomes the reference.

        Args:
            p50_ms: Its time.
            measure_ms: Measures it again; ``None`` when that fails.
        """
        if self._measure_ms is None:
            self._first_ms = p50_ms
            self._measure_ms = measure_ms

    def drift(self) -> float:
        """How many times the reference placement's first time it takes now; measured again when it is due."""
        self._since += 1
        if self._measure_ms is not None and self._first_ms and self._since > self._every:
            self._since = 0
            now_ms = self._measure_ms()
            if now_ms is not None:
                ratio = now_ms / self._first_ms
                self._drift = ratio if abs(ratio - 1) > DRIFT_THAT_COUNTS else 1.0
        return self._drift


def without_drift(timing: Timing, drift: float) -> Timing:
    """The timing as it would have been at the start of the search."""
    if drift == 1.0:
        return timing

    def scaled(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(value / drift for value in values)

    low_ms, high_ms = timing.ci95_ms
    return replace(
        timing,
        times_ms=scaled(timing.times_ms),
        p50_ms=timing.p50_ms / drift,
        ci95_ms=(low_ms / drift, high_ms / drift),
        min_ms=timing.min_ms / drift,
        p90_ms=timing.p90_ms / drift,
        p99_ms=timing.p99_ms / drift,
        segment_ms=scaled(timing.segment_ms),
        handover_ms=scaled(timing.handover_ms),
    )
