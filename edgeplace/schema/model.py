"""Frozen models, and the errors of a file that does not fit one: each with its file and line, all at once."""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union

import pydantic
from pydantic import Field, PrivateAttr, field_validator, model_validator

from edgeplace.errors import ProfileError
from edgeplace.registry import nearest_name_hint
from edgeplace.schema.document import Document, Path_, Problem, read_document, read_text
from edgeplace.schema.writer import dump_value

__all__ = [
    "MAX_NODE_ID",
    "Field",
    "FrozenModel",
    "NodeRanges",
    "Scalar",
    "ShortFloat",
    "TimeMs",
    "dump_model",
    "field_validator",
    "json_schema",
    "load_model",
    "merge_values",
    "model_validator",
    "node_ranges",
    "parse_model",
    "raise_problems",
    "validate_document",
    "validate_value",
]

MAX_NODE_ID = 1_000_000
"""A node list may not name larger nodes, so that ``[0-999999999999]`` cannot fill the memory."""
SIGNIFICANT_DIGITS = 6
"""Times and agreement numbers are kept at this many digits; a clock is not better than that."""

M = TypeVar("M", bound="FrozenModel")


class FrozenModel(pydantic.BaseModel):
    """Base of everything that is read from or written to YAML: immutable, unknown keys refused, types exact.

    Lists are tuples. Two models are equal when their fields are, wherever they were read from.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    _document: Document | None = PrivateAttr(default=None)

    def where(self, *path: str | int) -> str:
        """``file:line`` of the field at ``path`` in the file this model was read from, else an empty string."""
        return "" if self._document is None else self._document.where(*path)

    def refuse(self, problems: Sequence[tuple[Path_, str]]) -> typing.NoReturn:
        """Raise one :class:`ProfileError` that tells all problems: (path of the field, message) each."""
        document = self._document or Document(None, type(self).__name__)
        raise_problems(document, [Problem(document.line(path), message) for path, message in problems])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__


Scalar = Union[bool, int, float, str]
"""The value of an option."""


def _short(value: float) -> float:
    if math.isnan(value):
        raise ValueError("is not a number")
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


ShortFloat = Annotated[float, pydantic.AfterValidator(_short)]
"""A float kept at :data:`SIGNIFICANT_DIGITS` digits, so that what is in memory is what stands in the file.

Infinity is one (the SNR of equal outputs); NaN is none, since every comparison with it is silently false.
"""
TimeMs = Annotated[ShortFloat, Field(ge=0, allow_inf_nan=False)]
"""A time in milliseconds."""


def _parse_ranges(value: object) -> object:
    if not isinstance(value, (tuple, list)):
        return value
    nodes: list[int] = []
    for entry in value:
        first, last = _range_of(entry)
        if last > MAX_NODE_ID:
            raise ValueError(f"node {last} is beyond {MAX_NODE_ID}")
        if first > last:
            raise ValueError(f"'{entry}' counts backwards")
        nodes.extend(range(first, last + 1))
        if len(nodes) > MAX_NODE_ID:
            raise ValueError(f"names more than {MAX_NODE_ID} nodes")
    return tuple(nodes)


def _range_of(entry: object) -> tuple[int, int]:
    if isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0:
        return entry, entry
    if isinstance(entry, str) and (match := re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", entry)):
        return int(match[1]), int(match[2])
    raise ValueError(f"'{entry}' is neither a node number nor a range like 3-7")


def node_ranges(nodes: Iterable[int]) -> list[int | str]:
    """Node numbers as they stand in a file: runs of three or more as ``first-last``."""
    ranges: list[int | str] = []
    run: list[int] = []
    for node in [*nodes, None]:
        if run and node == run[-1] + 1:
            run.append(node)
            continue
        ranges.extend([f"{run[0]}-{run[-1]}"] if len(run) > 2 else run)
        run = [] if node is None else [node]
    return ranges


NodeRanges = Annotated[
    tuple[int, ...],
    pydantic.BeforeValidator(_parse_ranges),
    pydantic.PlainSerializer(node_ranges),
    pydantic.WithJsonSchema(
        {
            "type": "array",
            "description": "Node numbers and ranges of them.",
            "items": {
                "anyOf": [
                    {"type": "integer", "minimum": 0},
                    {"type": "string", "pattern": "^[0-9]{1,9}-[0-9]{1,9}$"},
                ]
            },
        }
    ),
]
"""Node numbers; in a file, single numbers and ranges: ``[0-41, 45]``."""


def load_model(model: type[M], path: Path) -> M:
    """Read a YAML file into a model.

    Raises:
        ProfileError: The file cannot be read or does not fit; all problems of the file, each with its line.
    """
    return parse_model(model, read_text(path), str(path))


def parse_model(model: type[M], text: str, source: str) -> M:
    """Read YAML text into a model; ``source`` is what messages call it.

    Raises:
        ProfileError: The text does not fit; all problems, each with its line.
    """
    return validate_document(model, read_document(text, source))


def validate_value(model: type[M], value: Mapping[str, Any], source: str) -> M:
    """Make a model of plain values that come from somewhere else than a file (a command line).

    Raises:
        ProfileError: The values do not fit.
    """
    return validate_document(model, Document(dict(value), source))


def validate_document(model: type[M], document: Document) -> M:
    """Make a model of a document that was read already.

    Raises:
        ProfileError: It does not fit; all problems, each with its line.
    """
    try:
        result = model.model_validate(document.value)
    except pydantic.ValidationError as error:
        found = _problems_of(model, document, error.errors(include_url=False))
        raise_problems(document, [*document.problems, *found])
    if document.problems:
        raise_problems(document, document.problems)
    result._document = document
    return result


def merge_values(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``changes`` over it; mappings are merged, everything else is replaced."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = merge_values(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def raise_problems(document: Document, problems: Sequence[Problem]) -> typing.NoReturn:
    """Raise one :class:`ProfileError` that tells all ``problems`` in the order of their lines."""
    ordered = sorted(problems, key=lambda problem: problem.line)
    places = [f"{document.source}:{p.line}" if document.lines else document.source for p in ordered]
    rest = [f"{place}: {p.message}" for place, p in zip(places[1:], ordered[1:], strict=True)]
    raise ProfileError("\n".join([ordered[0].message, *rest]), where=places[0])


def dump_model(value: FrozenModel, comment: str = "") -> str:
    """Canonical YAML of a model: fields in the order they are declared; what has its default value is left out."""
    return dump_value(value.model_dump(exclude_defaults=True), comment)


def json_schema(model: type[FrozenModel]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that a file of this kind fits; editors complete and check with it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(mode="validation"),
    }


_EXPECTED: Mapping[str, str] = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "none_required": "nothing",
}
"""What pydantic's type errors mean to a person who writes YAML."""


def _problems_of(model: type[FrozenModel], document: Document, errors: Sequence[Any]) -> list[Problem]:
    """pydantic's errors in our words; the alternatives of a union become one problem."""
    expected: dict[Path_, list[str]] = {}
    inputs: dict[Path_, Any] = {}
    problems: list[Problem] = []
    explained: set[Path_] = set()
    for error in errors:
        loc: Path_ = tuple(error["loc"])
        path = document.known_part(loc) if document.lines else loc
        if error["type"] in _EXPECTED:
            words = expected.setdefault(path, [])
            if _EXPECTED[error["type"]] not in words:
                words.append(_EXPECTED[error["type"]])
            inputs[path] = error["input"]
        else:
            explained.add(path)
            problems.append(Problem(document.line(loc), _message(model, loc, path, error)))
    for path, words in expected.items():
        if path in explained:  # the alternative that is meant has said what is wrong with it
            continue
        quotes = "; put it in quotes" if words == ["text"] and isinstance(inputs[path], (int, float)) else ""
        text = f"{_spell(path)}: expected {_either(words)}, not {_describe(inputs[path])}{quotes}"
        problems.append(Problem(document.line(path), text))
    return problems


def _message(model: type[FrozenModel], loc: Path_, path: Path_, error: Any) -> str:
    kind = error["type"]
    if kind == "extra_forbidden":
        keys = _keys_at(model, loc[:-1])
        hint = f"; {nearest_name_hint(str(loc[-1]), keys)}" if keys else ""
        parent = f"of {_spell(loc[:-1])}" if len(loc) > 1 else "here"
        return f"'{loc[-1]}' is not a key {parent}{hint}"
    if kind == "missing":
        return f"{_spell(loc)} is missing"
    if kind == "literal_error":
        wanted = re.findall(r"'([^']*)'", str(error["ctx"]["expected"]))
        if len(wanted) == 1:
            return f"{_spell(path)}: expected '{wanted[0]}', not {_describe(error['input'])}"
        close = nearest_name_hint(str(error["input"]), wanted)
        hint = f"; {close}" if close.startswith("did") else ""
        names = ", ".join(f"'{word}'" for word in wanted)
        return f"{_spell(path)}: {_describe(error['input'])} is not one of {names}{hint}"
    if kind == "value_error":
        return f"{_spell(path)}: {error['ctx']['error']}" if path else str(error["ctx"]["error"])
    text = str(error["msg"])
    return f"{_spell(path)}: {text[:1].lower()}{text[1:]}"


def _spell(path: Path_) -> str:
    """``("segments", 2, "nodes")`` as ``segments[2].nodes``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the file"


def _describe(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (tuple, list)):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    shown = text if len(text) <= 60 else text[:57] + "..."
    return f"'{shown}'" if isinstance(value, str) else shown


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _keys_at(model: type[FrozenModel], path: Path_) -> list[str]:
    """The keys that the model at ``path`` inside ``model`` has; empty when there is no model there."""
    kind: Any = model
    for part in path:
        kind = _step(kind, part)
    found = _model_in(kind)
    return [] if found is None else list(found.model_fields)


def _step(kind: Any, part: str | int) -> Any:
    found = _model_in(kind)
    if found is not None:
        field = found.model_fields.get(str(part))
        return None if field is None else field.annotation
    arguments = [a for a in typing.get_args(kind) if a is not type(None) and a is not Ellipsis]
    return arguments[-1] if arguments else None


def _model_in(kind: Any) -> type[FrozenModel] | None:
    """The model that ``kind`` is, or that ``kind | None`` holds."""
    if isinstance(kind, type) and issubclass(kind, FrozenModel):
        return kind
    if typing.get_origin(kind) in (dict, tuple, list):
        return None
    models = [a for a in typing.get_args(kind) if isinstance(a, type) and issubclass(a, FrozenModel)]
    return models[0] if len(models) == 1 else None
