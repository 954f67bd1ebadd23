"""Option values as boards and command lines give them: numbers and flags, also written as text."""

from __future__ import annotations

from typing import Any

from device_agents.protocol import RequestError

_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
MAX_THREADS = 1024


def as_flag(name: str, value: Any) -> bool:
    """A flag.

    Raises:
        RequestError: The value is neither true nor false.
    """
    text = str(value).lower()
    if text not in _FLAGS:
        raise RequestError(f"option {name} is {value!r}, neither true nor false")
    return _FLAGS[text]


def as_threads(name: str, value: Any) -> int:
    """A number of threads, at least 1.

    Raises:
        RequestError: The value is no such number.
    """
    try:
        threads = int(value)
    except (TypeError, ValueError):
        threads = 0
    if not 1 <= threads <= MAX_THREADS:
        raise RequestError(f"option {name} is {value!r}, not a number of threads")
    return threads
