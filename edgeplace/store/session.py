"""One search and its runs: a START before each, an END after it, both on the disk before anything else happens.

A host that is killed at any moment loses at most the run in flight, and the START it leaves behind says which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Row, insert, select, update

from edgeplace.measure.measurement import Measurement
from edgeplace.store.database import Database
from edgeplace.store.records import (
    RECORD_KINDS,
    Record,
    RecordKind,
    Unfinished,
    measurement_from_json,
    measurement_to_json,
    to_json,
)
from edgeplace.store.session_lock import SessionLock
from edgeplace.store.tables import measurements, sessions

Clock = Callable[[], datetime]


class Session:
    """One search: its runs in order. Made by :meth:`Store.session`; one process at a time has it.

    Attributes:
        id: Number of the session in its store.
        key: What makes two searches the same one.

    Raises:
        StoreError: Another process works on this session.
    """

    def __init__(self, database: Database, session_id: int, key: str, clock: Clock) -> None:
        self.id = session_id
        self.key = key
        self._database = database
        self._clock = clock
        self._in_flight: set[int] = set()
        self._lock = SessionLock(database.path, session_id)

    def start(
        self, plan_id: str, placement_id: str, kind: RecordKind = "measure", platforms: Sequence[str] = ()
    ) -> int:
        """Write a START; when this returns, it is on the disk and the run may begin.

        Args:
            platforms: The placement itself, so that the record can be read without the model at hand.

        Returns:
            The token :meth:`end` and :meth:`give_up` take.

        Raises:
            StoreError: The database refused; no run should begin.
        """
        if kind not in RECORD_KINDS:
            raise ValueError(f"'{kind}' is no kind of run")
        values = {
            "session_id": self.id,
            "kind": kind,
            "plan_id": plan_id,
            "placement_id": placement_id,
            "platforms": to_json(list(platforms)),
            "started_at": self._clock().isoformat(),
        }
        with self._database.writing() as connection:
            inserted = connection.execute(insert(measurements).values(values)).inserted_primary_key
        assert inserted is not None
        token = int(inserted[0])
        self._in_flight.add(token)
        return token

    def end(self, token: int, measurement: Measurement | None) -> None:
        """Write the END of a run with its result; when this returns, it is on the disk.

        Args:
            measurement: A time or a failure; ``None`` for a run that has no time of its own (a reference).

        Raises:
            StoreError: The database refused. The token stays valid: call again once there is room.
            ValueError: No such run is in flight, or the measurement holds something that is not a JSON value.
        """
        payload = "null" if measurement is None else measurement_to_json(measurement)
        self._finish_run(token, {"payload": payload})

    def give_up(self, token: int, reason: str) -> None:
        """Write that a run was stopped for a reason outside of it (Ctrl-C, a broken link, a throttled batch).

        It is then neither a record nor unfinished, and no strike against its plan.

        Raises:
            StoreError: The database refused.
            ValueError: No such run is in flight.
        """
        self._finish_run(token, {"given_up": reason})

    def records(self, kind: RecordKind | None = None) -> tuple[Record, ...]:
        """All finished runs (of one kind), in the order they were started.

        Raises:
            StoreError: The database refused, or a record was damaged.
        """
        query = (
            select(measurements)
            .where(
                measurements.c.session_id == self.id,
                measurements.c.ended_at.is_not(None),
                measurements.c.given_up.is_(None),
            )
            .order_by(measurements.c.id)
        )
        if kind is not None:
            query = query.where(measurements.c.kind == kind)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return tuple(self._record(row) for row in rows)

    def measurements(self, kind: RecordKind = "measure") -> tuple[Measurement, ...]:
        """What was measured by all finished runs of one kind, in the order they were started.

        Raises:
            StoreError: The database refused, or a record was damaged.
        """
        return tuple(r.measurement for r in self.records(kind) if r.measurement is not None)

    def unfinished(self) -> tuple[Unfinished, ...]:
        """The STARTs of earlier processes that have no END: the host was killed, or crashed, in the middle.

        Raises:
            StoreError: The database refused.
        """
        query = (
            select(measurements)
            .where(measurements.c.session_id == self.id, measurements.c.ended_at.is_(None))
            .order_by(measurements.c.id)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return tuple(
            Unfinished(
                id=row.id,
                kind=row.kind,
                plan_id=row.plan_id,
                placement_id=row.placement_id,
                platforms=tuple(json.loads(row.platforms)),
                started_at=datetime.fromisoformat(row.started_at),
            )
            for row in rows
            if row.id not in self._in_flight
        )

    def strikes(self) -> Mapping[str, int]:
        """Plan id -> how often the host died while it ran, over all sessions of this key.

        Raises:
            StoreError: The database refused.
        """
        query = (
            select(measurements.c.id, measurements.c.plan_id)
            .join(sessions, sessions.c.id == measurements.c.session_id)
            .where(sessions.c.key == self.key, measurements.c.ended_at.is_(None))
            .order_by(measurements.c.id)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        counts: dict[str, int] = {}
        for row in rows:
            if row.id not in self._in_flight:
                counts[row.plan_id] = counts.get(row.plan_id, 0) + 1
        return counts

    @property
    def result(self) -> str | None:
        """The text :meth:`finish` wrote, ``None`` while the search is not finished.

        Raises:
            StoreError: The database refused.
        """
        with self._database.reading() as connection:
            row = connection.execute(select(sessions.c.result).where(sessions.c.id == self.id)).first()
        return None if row is None else row.result

    def finish(self, result: str) -> None:
        """Write that the search is over and what came of it (the delegate map's text), and close the session.

        Raises:
            StoreError: The database refused.
        """
        with self._database.writing() as connection:
            connection.execute(
                update(sessions)
                .where(sessions.c.id == self.id)
                .values(finished_at=self._clock().isoformat(), result=result)
            )
        self.close()

    def close(self) -> None:
        """Let other processes go on with this session. Runs in flight stay unfinished."""
        self._lock.release()

    def _finish_run(self, token: int, values: Mapping[str, str]) -> None:
        if token not in self._in_flight:
            raise ValueError(f"no run {token} is in flight")
        with self._database.writing() as connection:
            connection.execute(
                update(measurements)
                .where(measurements.c.id == token)
                .values(ended_at=self._clock().isoformat(), **values)
            )
        self._in_flight.discard(token)

    def _record(self, row: Row[tuple[object, ...]]) -> Record:
        try:
            return Record(
                id=row.id,
                kind=row.kind,
                plan_id=row.plan_id,
                placement_id=row.placement_id,
                platforms=tuple(json.loads(row.platforms)),
                started_at=datetime.fromisoformat(row.started_at),
                ended_at=datetime.fromisoformat(row.ended_at),
                measurement=None if row.payload == "null" else measurement_from_json(row.payload),
            )
        except (TypeError, ValueError) as error:
            raise self._database.unreadable(f"record {row.id}", error) from error
