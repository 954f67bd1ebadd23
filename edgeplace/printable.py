"""Text from files, shown on a terminal."""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """``text`` with control characters as escapes: a name in a model file must not steer the terminal it is shown on.

    Line ends and tabs stay; characters that turn the direction of writing do not.
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)
