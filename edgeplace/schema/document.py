"""YAML text to plain values, with the line of every value kept.

A small, strict subset of YAML 1.2: mappings with text keys, lists, and core-schema scalars. No tags (nothing in a
file can name a Python type), no repeated keys, one document per file. Text from a file is untrusted: its size, its
nesting and the number of values its aliases expand to are capped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import yaml

from edgeplace.errors import ProfileError

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Larger files are refused unread. A delegate map of 5000 segments is under 1 MiB."""
MAX_DEPTH = 32
"""Deepest nesting; the deepest file EdgePlace writes nests 6 levels."""
MAX_VALUES = 200_000
"""Most values after aliases are expanded (an "alias bomb" multiplies a few bytes to billions of values)."""

Value = Union[None, bool, int, float, str, tuple["Value", ...], dict[str, "Value"]]
Path_ = tuple[Union[str, int], ...]

_INT = re.compile(r"[-+]?[0-9]{1,1000}|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,21}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NAMED: Mapping[str, Value] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file, and the line it stands on (1 is the first)."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Document:
    """A file's values and where each of them stands.

    Attributes:
        value: The plain values: ``None``, bool, int, float, str, tuple, dict.
        source: What messages call the file.
        lines: Path of a value (keys and list positions) -> line of its key or dash.
        problems: What is wrong already (tags, repeated keys); reported together with what validation finds.
    """

    value: Value
    source: str
    lines: Mapping[Path_, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def line(self, path: Path_) -> int:
        """The line of the value at ``path``, or of the nearest value around it that the file has."""
        return self.lines.get(self.known_part(path), 1)

    def known_part(self, path: Path_) -> Path_:
        """The longest beginning of ``path`` that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return path

    def where(self, *path: str | int) -> str:
        """``file:line`` of the value at ``path``; just the file when no lines are known."""
        return f"{self.source}:{self.line(path)}" if self.lines else self.source


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ProfileError: It cannot be read, is larger than :data:`MAX_FILE_BYTES`, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    if len(data) > MAX_FILE_BYTES:
        raise ProfileError(f"is larger than {MAX_FILE_BYTES // 2**20} MiB", where=str(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ProfileError("is not UTF-8 text", where=f"{path}:{line}") from None


def read_document(text: str, source: str) -> Document:
    """Read YAML text.

    Args:
        text: The whole text.
        source: What messages call it, usually the file's path.

    Returns:
        The values with their lines. Problems that leave the structure readable are in ``problems``.

    Raises:
        ProfileError: The text is not YAML, or breaks one of the caps; ``where`` names the line.
    """
    if len(text) > MAX_FILE_BYTES:
        raise ProfileError(f"is larger than {MAX_FILE_BYTES // 2**20} MiB", where=source)
    problems: list[Problem] = []
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ProfileError("holds a character that YAML does not allow", where=f"{source}:{line}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        what = ", ".join(part for part in (error.context, error.problem) if part)
        hint = "indent with spaces, not tabs" if "\\t" in what else ""
        raise ProfileError(f"is not valid YAML: {what}", where=where, hint=hint) from None
    if root is None:
        raise ProfileError("is empty", where=source)
    problems.extend(loader.problems)
    converter = _Converter(source, problems)
    value = converter.convert(root, ())
    return Document(value, source, converter.lines, tuple(problems))


class _Loader(yaml.SafeLoader):
    """Composes nodes with marks; notes tags and refuses deep nesting while composing."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.problems: list[Problem] = []
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.problems.append(Problem(event.start_mark.line + 1, f"YAML tags are not allowed ('{tag}')"))
            event.tag = None
            if isinstance(event, yaml.ScalarEvent):
                event.implicit = (True, True)
            else:
                event.implicit = True
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=event.start_mark
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Converter:
    """Nodes to plain values, with lines by path, counting what aliases expand to."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.lines: dict[Path_, int] = {}
        self._source = source
        self._problems = problems
        self._count = 0

    def convert(self, node: Any, path: Path_, line: int | None = None) -> Value:
        line = node.start_mark.line + 1 if line is None else line
        self.lines[path] = line
        self._count += 1
        if self._count > MAX_VALUES:
            raise ProfileError(f"holds more than {MAX_VALUES} values", where=f"{self._source}:{line}")
        if len(path) > MAX_DEPTH:  # an anchor that contains its own alias
            raise ProfileError(f"is nested deeper than {MAX_DEPTH} levels", where=f"{self._source}:{line}")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return tuple(self.convert(item, (*path, index)) for index, item in enumerate(node.value))
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Value]:
        values: dict[str, Value] = {}
        first_line: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.value:
                self._problems.append(Problem(line, "a key must be a word"))
                continue
            key = key_node.value
            if key in values:
                self._problems.append(
                    Problem(line, f"'{key}' is repeated; it first stands on line {first_line[key]}")
                )
                continue
            first_line[key] = line
            values[key] = self.convert(value_node, (*path, key), line)
        return values

    def _scalar(self, node: yaml.ScalarNode) -> Value:
        text: str = node.value
        return resolve_scalar(text) if node.style is None else text


def resolve_scalar(text: str) -> Value:
    """The value of an unquoted scalar by the YAML 1.2 core schema (so ``no`` and ``1:30`` are text).

    Whole numbers may be long: a map holds the exact number of placements, five platforms to the power of hundreds of
    operators. Beyond a thousand digits they stay text.
    """
    if text in _NAMED:
        return _NAMED[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if _FLOAT.fullmatch(text) and not text.lstrip("+-").isdigit():
        return float(text)
    return text
