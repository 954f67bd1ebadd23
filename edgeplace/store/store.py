"""The store: sessions, what platforms were found to support, and reference outputs, in one SQLite file."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or_update

from edgeplace.errors import StoreError
from edgeplace.store.database import Database
from edgeplace.store.records import (
    SessionSummary,
    Support,
    failure_from_json,
    failure_to_json,
    to_json,
)
from edgeplace.store.session import Clock, Session
from edgeplace.store.tables import measurements, reference_outputs, sessions, support
from edgeplace.user_folders import home_folder

LOG = logging.getLogger(__name__)

NOT_ABOUT_THE_SEGMENT = frozenset({"agent_lost", "link_lost", "board_rebooted", "device_gone"})
"""Failures that say nothing about what a platform supports, and are not remembered as such."""


def default_store_path() -> Path:
    """Where records go when the user names no store."""
    return home_folder() / ".edgeplace" / "store.sqlite"


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Store:
    """Everything ever measured, in one SQLite file. Use it from one thread, as a context manager.

    Make one with :meth:`open`.
    """

    def __init__(self, database: Database, *, references_cap_bytes: int, clock: Clock) -> None:
        self._database = database
        self._references_cap_bytes = references_cap_bytes
        self._clock = clock
        self._open_sessions: list[Session] = []

    @classmethod
    def open(
        cls,
        url_or_path: str | Path | None = None,
        *,
        busy_timeout_s: float = 30.0,
        references_cap_bytes: int = 512 * 1024 * 1024,
        clock: Clock = _utc_now,
    ) -> Store:
        """Open the store, making it (and its folder) when there is none.

        Args:
            url_or_path: A path or a ``sqlite:///`` URL; ``None`` for :func:`default_store_path`.
            busy_timeout_s: How long a write waits while another process writes.
            references_cap_bytes: Reference outputs are kept up to this total, least recently used goes first.
            clock: Says what time it is, replaceable in tests.

        Raises:
            StoreError: The file cannot be opened or written, is something else, is damaged, or has another format.
        """
        database = Database(
            default_store_path() if url_or_path is None else url_or_path, busy_timeout_s=busy_timeout_s
        )
        return cls(database, references_cap_bytes=references_cap_bytes, clock=clock)

    @property
    def where(self) -> str:
        """The file, for messages."""
        return self._database.where

    def close(self) -> None:
        """Close the file and let go of the sessions."""
        for session in self._open_sessions:
            session.close()
        self._open_sessions.clear()
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # Sessions -------------------------------------------------------------------------------------------------

    def session(self, key: str, facts: Mapping[str, object], *, resume: bool) -> Session:
        """Begin a session, or go on with the newest one of that key.

        Args:
            key: What makes two searches the same one, see :func:`~edgeplace.store.records.session_key`.
            facts: What the key was made from, kept for people; JSON values only.
            resume: Go on with the newest session of that key. Without it a new one begins, and the records of
                the earlier ones stay where they are.

        Raises:
            StoreError: There is nothing to resume, another process works on that session, or the database refused.
            ValueError: ``facts`` holds something that is not a JSON value.
        """
        text = to_json(facts)
        if resume:
            last = self.last_session(key)
            if last is None:
                raise StoreError(
                    "there is no earlier search of this model with these settings to go on with",
                    where=self.where,
                    hint="start it without --resume",
                )
            session_id = last.id
        else:
            with self._database.writing() as connection:
                session_id = self._new_session(connection, key, text)
        session = Session(self._database, session_id, key, self._clock)
        self._open_sessions.append(session)
        return session

    def last_session(self, key: str) -> SessionSummary | None:
        """The newest session of ``key``, ``None`` when there is none.

        Raises:
            StoreError: The database refused.
        """
        found = self._summaries(key)
        return found[-1] if found else None

    def sessions(self) -> tuple[SessionSummary, ...]:
        """All sessions, oldest first.

        Raises:
            StoreError: The database refused.
        """
        return self._summaries(None)

    def _new_session(self, connection: Connection, key: str, facts: str) -> int:
        values = {"key": key, "facts": facts, "created_at": self._clock().isoformat()}
        inserted = connection.execute(insert(sessions).values(values)).inserted_primary_key
        assert inserted is not None
        return int(inserted[0])

    def _summaries(self, key: str | None) -> tuple[SessionSummary, ...]:
        ended = measurements.c.ended_at.is_not(None)
        counts = (
            select(
                measurements.c.session_id,
                func.sum(
                    (ended & (measurements.c.kind == "measure") & measurements.c.given_up.is_(None)).cast(
                        sessions.c.id.type
                    )
                ).label("measured"),
                func.sum((~ended).cast(sessions.c.id.type)).label("unfinished"),
            )
            .group_by(measurements.c.session_id)
            .subquery()
        )
        query = (
            select(sessions, counts.c.measured, counts.c.unfinished)
            .outerjoin(counts, counts.c.session_id == sessions.c.id)
            .order_by(sessions.c.id)
        )
        if key is not None:
            query = query.where(sessions.c.key == key)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        try:
            return tuple(
                SessionSummary(
                    id=row.id,
                    key=row.key,
                    facts=json.loads(row.facts),
                    created_at=datetime.fromisoformat(row.created_at),
                    finished_at=_time_or_none(row.finished_at),
                    measured=row.measured or 0,
                    unfinished=row.unfinished or 0,
                )
                for row in rows
            )
        except (TypeError, ValueError) as error:
            raise self._database.unreadable("a session", error) from error

    # Support --------------------------------------------------------------------------------------------------

    def support_get(self, segment_sha256: str, platform_hash: str, runtime: str) -> Support | None:
        """What trying this segment file on this platform and runtime gave, ``None`` when it was never tried.

        Args:
            segment_sha256: Hash of the segment's ``.tflite`` file.
            platform_hash: Hash of everything that defines the platform (loader, options, library's own hash).
            runtime: Fingerprint of the runtime and the board.

        Raises:
            StoreError: The database refused.
        """
        query = select(support).where(
            support.c.segment_sha256 == segment_sha256,
            support.c.platform_hash == platform_hash,
            support.c.runtime == runtime,
        )
        with self._database.reading() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        try:
            failure = None if row.failure is None else failure_from_json(row.failure)
            return Support(failure, row.time_ms, json.loads(row.details))
        except (TypeError, ValueError) as error:
            raise self._database.unreadable("a record of support", error) from error

    def support_put(self, segment_sha256: str, platform_hash: str, runtime: str, found: Support) -> None:
        """Remember what a try gave; a newer try replaces an older one.

        A failure of the link, the agent or the board says nothing about the segment and is not remembered.

        Raises:
            StoreError: The database refused.
            ValueError: ``found.details`` holds something that is not a JSON value.
        """
        if found.failure is not None and found.failure.kind in NOT_ABOUT_THE_SEGMENT:
            LOG.debug("not remembered as lack of support: %s", found.failure)
            return
        key = {"segment_sha256": segment_sha256, "platform_hash": platform_hash, "runtime": runtime}
        values = {
            "failure": None if found.failure is None else failure_to_json(found.failure),
            "time_ms": found.time_ms,
            "details": to_json(found.details),
            "recorded_at": self._clock().isoformat(),
        }
        with self._database.writing() as connection:
            connection.execute(
                insert_or_update(support)
                .values(**key, **values)
                .on_conflict_do_update(index_elements=list(key), set_=values)
            )

    # Reference outputs ----------------------------------------------------------------------------------------

    def reference_get(self, key: str) -> bytes | None:
        """The bytes kept under ``key``; ``None`` when there are none, or when they are not what was kept.

        Raises:
            StoreError: The database refused.
        """
        with self._database.writing() as connection:
            row = connection.execute(select(reference_outputs).where(reference_outputs.c.key == key)).first()
            if row is None:
                return None
            connection.execute(
                update(reference_outputs)
                .where(reference_outputs.c.key == key)
                .values(last_use=_next_use(connection))
            )
        data = bytes(row.data)
        if hashlib.sha256(data).hexdigest() != row.sha256:
            LOG.warning("%s: a reference output was damaged and will be made again", self.where)
            return None
        return data

    def reference_put(self, key: str, data: bytes) -> bool:
        """Keep ``data`` under ``key``, dropping the least recently used ones when there is no room.

        Returns:
            False when ``data`` alone is larger than the cap; nothing is kept then.

        Raises:
            StoreError: The database refused.
        """
        if len(data) > self._references_cap_bytes:
            return False
        with self._database.writing() as connection:
            connection.execute(delete(reference_outputs).where(reference_outputs.c.key == key))
            self._make_room(connection, len(data))
            connection.execute(
                insert(reference_outputs).values(
                    key=key,
                    sha256=hashlib.sha256(data).hexdigest(),
                    size_bytes=len(data),
                    last_use=_next_use(connection),
                    data=data,
                )
            )
        return True

    def _make_room(self, connection: Connection, wanted_bytes: int) -> None:
        rows = connection.execute(
            select(reference_outputs.c.key, reference_outputs.c.size_bytes).order_by(
                reference_outputs.c.last_use
            )
        ).all()
        used_bytes = sum(row.size_bytes for row in rows)
        for row in rows:
            if used_bytes + wanted_bytes <= self._references_cap_bytes:
                return
            connection.execute(delete(reference_outputs).where(reference_outputs.c.key == row.key))
            used_bytes -= row.size_bytes


def _next_use(connection: Connection) -> int:
    newest = connection.execute(select(func.max(reference_outputs.c.last_use))).scalar()
    return 1 if newest is None else newest + 1


def _time_or_none(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
