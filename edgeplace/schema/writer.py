"""Plain values to canonical YAML text: the same value always gives the same text.

Keys stand in the order given. What fits in one line is written in one line (``{a: 1, b: [2, 3]}``), the rest in
blocks; the outermost mapping is always a block, and so are rows of mappings. Text is unquoted only when YAML 1.1 and 1.2 readers both take it
for the same text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from edgeplace.schema.document import resolve_scalar

MAX_LINE = 110
_PLAIN = re.compile(r"[A-Za-z0-9_/.~-][A-Za-z0-9_/.+@()%=-]*( [A-Za-z0-9_/.+@()%=-]+)*")
_YAML_11 = yaml.resolver.Resolver()
_TEXT_TAG = "tag:yaml.org,2002:str"


def dump_value(value: Mapping[str, Any], comment: str = "") -> str:
    """Canonical YAML of a mapping.

    Args:
        value: Mappings with text keys, lists or tuples, and scalars.
        comment: Lines to put before it, without the ``#``.

    Raises:
        TypeError: A value of another type, or a key that is no text (a mistake in the code).
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    if not value:
        lines.append("{}")
    _write_mapping(lines, value, 0)
    return "\n".join(lines) + "\n"


def _write_mapping(lines: list[str], value: Mapping[str, Any], indent: int) -> None:
    for key, item in value.items():
        _write_item(lines, " " * indent + f"{_scalar(_key(key))}:", item, indent + 2)


def _write_item(lines: list[str], head: str, item: Any, indent: int) -> None:
    """Write ``item`` after ``head``: on the same line where it fits, else as a block below."""
    flow = _flow(item)
    fits = len(head) + 1 + len(flow) <= MAX_LINE and not _is_table(item)
    if not _is_container(item) or not item or fits:
        lines.append(f"{head} {flow}")
    elif isinstance(item, Mapping):
        lines.append(head)
        _write_mapping(lines, item, indent)
    elif not any(_is_container(element) for element in item):
        lines.append(f"{head} [")
        _wrap(lines, [_scalar(element) for element in item], indent)
        lines[-1] += "]"
    else:
        lines.append(head)
        for element in item:
            _write_element(lines, element, indent)


def _write_element(lines: list[str], element: Any, indent: int) -> None:
    dash = " " * indent + "-"
    flow = _flow(element)
    if isinstance(element, Mapping) and element and len(dash) + 1 + len(flow) > MAX_LINE:
        start = len(lines)
        _write_mapping(lines, element, indent + 2)
        lines[start] = f"{dash} {lines[start][indent + 2 :]}"
    else:
        _write_item(lines, dash, element, indent + 2)


def _wrap(lines: list[str], words: list[str], indent: int) -> None:
    """Many scalars of one list over several lines."""
    current = " " * indent
    for number, word in enumerate(words):
        piece = word + (", " if number + 1 < len(words) else "")
        if len(current) + len(piece.rstrip()) > MAX_LINE and current.strip():
            lines.append(current.rstrip())
            current = " " * indent
        current += piece
    lines.append(current.rstrip())


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(_key(key))}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return _scalar(value)


def _is_container(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def _is_table(value: Any) -> bool:
    """Rows of mappings read better one below the other, however short they are."""
    rows = list(value.values()) if isinstance(value, Mapping) else value if _is_container(value) else []
    return bool(rows) and all(isinstance(row, Mapping) for row in rows)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key must be text, not {type(key).__name__}")
    return key


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _float(float(value))
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    raise TypeError(f"{type(value).__name__} has no YAML form")


def _float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    if "e" in text and "." not in text:  # YAML 1.1 takes 1e-05 for text
        text = text.replace("e", ".0e")
    return text


def _is_plain(text: str) -> bool:
    return (
        _PLAIN.fullmatch(text) is not None
        and isinstance(resolve_scalar(text), str)
        and not text.startswith(("- ", "---", "..."))
        and text != "-"
        and _YAML_11.resolve(yaml.ScalarNode, text, (True, False)) == _TEXT_TAG  # type: ignore[no-untyped-call]
    )


def _quoted(text: str) -> str:
    """Double-quoted; what YAML does not print as it is, is escaped."""
    pieces: list[str] = []
    for character in text:
        code = ord(character)
        if character in '"\\':
            pieces.append("\\" + character)
        elif character == "\n":
            pieces.append("\\n")
        elif character == "\t":
            pieces.append("\\t")
        elif character.isprintable() and code != 0xFEFF:
            pieces.append(character)
        else:
            pieces.append(
                f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
            )
    return '"' + "".join(pieces) + '"'
