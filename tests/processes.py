"""What tests ask the system about processes."""

from __future__ import annotations

import os


def is_gone(pid: int) -> bool:
    """True when no such process is left, zombies included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
