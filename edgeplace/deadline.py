"""One deadline is handed down a call chain, so that time limits do not stack."""

from __future__ import annotations

import time
from collections.abc import Callable


class Deadline:
    """A moment on the monotonic clock after which work must stop.

    Args:
        seconds: Time from now; ``None`` means never.
        clock: The clock, replaceable in tests.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end_s = None if seconds is None else clock() + seconds

    def remaining_s(self) -> float | None:
        """Seconds left, never below zero; ``None`` when there is no limit."""
        return None if self._end_s is None else max(0.0, self._end_s - self._clock())
