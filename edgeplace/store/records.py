"""What the store gives back, and how those values become JSON text and come back exactly as they were.

Floats are written with ``repr`` (the shortest text that reads back as the same double), infinities and NaN as
Python's JSON reader takes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, TypeVar, get_args

from edgeplace.measure.measurement import Agreement, Failure, Measurement, Timing

RecordKind = Literal["measure", "baseline", "interleave"]
"""Why something ran on the board: a placement of the search, what it is compared with, or the final."""

RECORD_KINDS: tuple[str, ...] = get_args(RecordKind)


@dataclass(frozen=True, slots=True)
class Record:
    """One finished run: its START, its END and what came of it.

    Attributes:
        id: Grows in the order the runs were started.
        platforms: The placement itself, one platform per unit, when whoever started the run gave it.
        measurement: What was measured; ``None`` for a run that has no time of its own (a reference).
    """

    id: int
    kind: RecordKind
    plan_id: str
    placement_id: str
    platforms: tuple[str, ...]
    started_at: datetime
    ended_at: datetime
    measurement: Measurement | None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A START without an END: the host was killed, or crashed, while this ran."""

    id: int
    kind: RecordKind
    plan_id: str
    placement_id: str
    platforms: tuple[str, ...]
    started_at: datetime


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """What is known of a session without opening it.

    Attributes:
        measured: Finished runs of kind ``measure``.
        unfinished: STARTs without an END.
    """

    id: int
    key: str
    facts: Mapping[str, object]
    created_at: datetime
    finished_at: datetime | None
    measured: int
    unfinished: int


@dataclass(frozen=True, slots=True)
class Support:
    """Whether one segment file works on one platform of one runtime, found by trying.

    Attributes:
        failure: Why it does not work, ``None`` when it does.
        time_ms: Median time of the segment alone, when it was timed.
        details: Anything else worth keeping (what really ran it, compile time); JSON values only.
    """

    failure: Failure | None = None
    time_ms: float | None = None
    details: Mapping[str, object] = field(default_factory=dict)


def session_key(facts: Mapping[str, object]) -> str:
    """A short, stable name for a search: equal facts give the same key in every process.

    Args:
        facts: What makes two searches the same one (model hash, board fingerprint, platforms, granularity,
            constraints, inputs hash, seed ...); JSON values only.

    Raises:
        ValueError: A fact is not a JSON value.
    """
    return hashlib.sha256(to_json(facts).encode()).hexdigest()[:32]


def to_json(value: object) -> str:
    """Canonical JSON text: sorted keys, no spaces.

    Raises:
        ValueError: Something in ``value`` is not a JSON value.
    """
    try:
        return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except TypeError as error:
        raise ValueError(f"not a JSON value: {error}") from None


def _plain(value: object) -> object:
    """The value with every mapping a dict, so that read-only mappings can be written too."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"not a JSON value: the key {key!r} is not text")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def failure_to_json(failure: Failure) -> str:
    """JSON text of a failure."""
    return to_json(_fields_of(failure))


def failure_from_json(text: str) -> Failure:
    """The failure that :func:`failure_to_json` wrote.

    Raises:
        ValueError: The text is not what that function writes.
    """
    return _build(Failure, json.loads(text))


def measurement_to_json(measurement: Measurement) -> str:
    """JSON text of a measurement, raw samples included.

    Raises:
        ValueError: ``health`` holds something that is not a JSON value.
    """
    document = _fields_of(measurement)
    for name in ("timing", "failure", "agreement"):
        part = document[name]
        document[name] = None if part is None else _fields_of(part)
    return to_json(document)


def measurement_from_json(text: str) -> Measurement:
    """The measurement that :func:`measurement_to_json` wrote, equal in every value.

    Raises:
        ValueError: The text is not what that function writes.
    """
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("a measurement is a JSON object")
    for name, part_type in (("timing", Timing), ("failure", Failure), ("agreement", Agreement)):
        if document.get(name) is not None:
            document[name] = _build(part_type, document[name])
    return _build(Measurement, document)


T = TypeVar("T")


def _build(kind: type[T], document: object) -> T:
    """An object of dataclass ``kind`` from its fields; lists become tuples, as all sequences of these types are."""
    if not isinstance(document, dict):
        raise ValueError(f"a {kind.__name__} is a JSON object")
    values = {name: tuple(item) if isinstance(item, list) else item for name, item in document.items()}
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from None


def _fields_of(item: Any) -> dict[str, Any]:
    """The fields of a dataclass object by name, one level deep (``asdict`` would copy read-only mappings)."""
    return {spec.name: getattr(item, spec.name) for spec in fields(item)}
