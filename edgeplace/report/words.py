"""Numbers as people read them: three significant digits and a unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgeplace.delegate_map import AgreementInfo, beyond_limit, describe_agreement

NOTHING = "-"


def ms_text(value: float | None) -> str:
    """Milliseconds with four significant digits at most: ``0.831``, ``12.4``, ``1204``."""
    if value is None:
        return NOTHING
    return f"{value:.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def interval_text(interval: Sequence[float] | None) -> str:
    """``0.820 .. 0.850``."""
    return NOTHING if interval is None else f"{ms_text(interval[0])} .. {ms_text(interval[1])}"


def ratio_text(value: float | None) -> str:
    """``1.12x``."""
    return NOTHING if value is None else f"{value:.2f}x"


def count_text(value: int) -> str:
    """``1.23 M``: thousands, millions, billions."""
    return _scaled(value, 1000, ("", "k", "M", "G", "T"))


def counted(number: int, noun: str) -> str:
    """``1 unit``, ``2 units``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def bytes_text(value: int) -> str:
    """``1.23 MiB``."""
    return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def shape_text(shape: Sequence[int]) -> str:
    """``1x224x224x3``; a dimension that may change is ``?``."""
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"


def agreement_text(agreement: Mapping[str, Any] | None) -> str:
    """An agreement as the map keeps it, in one line."""
    return NOTHING if not agreement else describe_agreement(AgreementInfo(**agreement))


def is_beyond_limit(agreement: Mapping[str, Any] | None, limit: Mapping[str, Any] | None) -> bool:
    """An agreement worse than the limit, both as the map keeps them."""
    return bool(agreement and limit) and beyond_limit(
        AgreementInfo(**agreement or {}), AgreementInfo(**limit or {})
    )


def short_text(text: str, length: int = 56) -> str:
    """A long name cut in its middle, where names of fused operators say the least."""
    if len(text) <= length:
        return text
    head = (length - 3) // 2
    return f"{text[:head]}...{text[len(text) - (length - 3 - head) :]}"


def _scaled(value: int, step: int, units: Sequence[str]) -> str:
    scaled, unit = float(value), 0
    while scaled >= step and unit + 1 < len(units):
        scaled, unit = scaled / step, unit + 1
    if unit == 0:
        return f"{value} {units[0]}".strip()
    return f"{scaled:.3g} {units[unit]}" if scaled < 1000 else f"{scaled:.0f} {units[unit]}"
