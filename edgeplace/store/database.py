"""One SQLite file: how it is opened, what its transactions promise, and what its errors mean to a person.

A transaction that returned is on the disk: write-ahead log with ``synchronous=FULL``. Writers take the write lock
at once (``BEGIN IMMEDIATE``), so that two hosts on one file queue up instead of failing in the middle.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from edgeplace.errors import StoreError
from edgeplace.store.tables import FORMAT, metadata, store_facts
from edgeplace.user_folders import expand_home

_WRITING = "edgeplace_writing"
_ASK_AGAIN_S = 0.01

_MEANINGS = (
    ("database is locked", "another EdgePlace is writing to it", "wait until the other run has finished, or give this run a store of its own"),
    ("database or disk is full", "the disk is full", "free some space and go on with --resume; what was recorded before is kept"),
    ("disk i/o error", "the disk does not take or give the data", "check the disk and its free space, then go on with --resume"),
    ("readonly database", "it may not be written", "make the file and its folder writable, or choose another store"),
    ("unable to open database file", "it cannot be opened", "check that the folder exists and that you may write in it"),
    ("file is not a database", "it is not a SQLite file", "choose another file, or move this one away"),
    ("malformed", "the file is damaged", "move it away (a new one is made), or restore a copy"),
    ("no such table", "a table is missing: the file is damaged or was changed by hand", "move it away (a new one is made), or restore a copy"),
    ("no such column", "a table was changed by hand", "move it away (a new one is made), or restore a copy"),
)  # fmt: skip


class Database:
    """An open store file of the right format.

    Args:
        url_or_path: A path, or a ``sqlite:///`` URL.
        busy_timeout_s: How long a writer waits for another one.

    Raises:
        StoreError: The file cannot be opened, is something else, is damaged, or has another format.
    """

    def __init__(self, url_or_path: str | Path, *, busy_timeout_s: float) -> None:
        url = _sqlite_url(url_or_path)
        self.path = None if _in_memory(url) else Path(str(url.database).removeprefix("file:"))
        self.where = str(self.path or "memory")
        if self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"the store's folder cannot be made: {error.strerror}",
                    where=self.where,
                    hint="choose another store",
                ) from error
        self.engine = _engine(url, busy_timeout_s)
        try:
            self._create_or_check()
        except BaseException:
            self.engine.dispose()
            raise

    def close(self) -> None:
        """Close the file; the write-ahead log is folded in by the last one to leave."""
        self.engine.dispose()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the file.

        Raises:
            StoreError: The database refused.
        """
        with self._explained(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that holds the write lock from its start and is on the disk when the block is left.

        Raises:
            StoreError: The database refused; nothing of the transaction is kept.
        """
        with (
            self._explained(),
            self.engine.connect().execution_options(**{_WRITING: True}) as connection,
            connection.begin(),
        ):
            yield connection

    def unreadable(self, what: str, error: Exception) -> StoreError:
        """The error for a row that is there but makes no sense."""
        return StoreError(
            f"{what} cannot be read: {error}",
            where=self.where,
            hint="the file was damaged or changed by hand; move it away (a new one is made)",
        )

    def _create_or_check(self) -> None:
        with self.reading() as connection:
            known = set(inspect(connection).get_table_names())
            found = self._format(connection) if store_facts.name in known else None
        if found is None:
            with self.writing() as connection:
                # Asked again under the lock: another host may have made the tables meanwhile.
                known = set(inspect(connection).get_table_names())
                if store_facts.name in known:
                    found = self._format(connection)
                elif known:
                    raise StoreError(
                        "it is a SQLite file of another program",
                        where=self.where,
                        hint="choose another file for the store",
                    )
                else:
                    metadata.create_all(connection)
                    connection.execute(insert(store_facts).values(name="format", value=str(FORMAT)))
                    found = str(FORMAT)
        if found != str(FORMAT):
            newer = found.isdecimal() and int(found) > FORMAT
            raise StoreError(
                f"it has store format {found}, this EdgePlace reads format {FORMAT}",
                where=self.where,
                hint="update EdgePlace, or choose another store" if newer else "choose another store",
            )

    def _format(self, connection: Connection) -> str:
        row = connection.execute(select(store_facts.c.value).where(store_facts.c.name == "format")).first()
        return "unknown" if row is None else str(row.value)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:
            text = str(error.orig) if isinstance(error, DBAPIError) else str(error)
            for pattern, meaning, hint in _MEANINGS:
                if pattern in text.lower():
                    raise StoreError(f"{meaning} ({text})", where=self.where, hint=hint) from error
            raise StoreError(text, where=self.where, hint="choose another store to go on") from error


def _sqlite_url(url_or_path: str | Path) -> URL:
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return URL.create("sqlite", database=str(expand_home(url_or_path)))
    try:
        url = make_url(url_or_path)
    except ArgumentError as error:
        raise StoreError(
            f"it is no database URL: {error}", where=url_or_path, hint="give a path, or sqlite:///path"
        ) from error
    if url.get_backend_name() != "sqlite":
        raise StoreError(
            f"this EdgePlace keeps its records in SQLite only, not in {url.get_backend_name()}",
            where=url.render_as_string(hide_password=True),
            hint="give a path, or sqlite:///path",
        )
    return url


def _in_memory(url: URL) -> bool:
    return url.database in (None, "", ":memory:")


def _engine(url: URL, busy_timeout_s: float) -> Engine:
    engine = create_engine(url, connect_args={"timeout": busy_timeout_s})

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        # The driver opens transactions by itself, and too late; from here on `begin` below does it.
        connection.isolation_level = None
        _use_write_ahead_log(connection, busy_timeout_s)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get(_WRITING, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _use_write_ahead_log(connection: Any, patience_s: float) -> None:
    """Switch a file to its write-ahead log; a file system without shared memory keeps its rollback journal.

    That is as safe, only slower. Two hosts that open a new file at the same time get in each other's way here, and
    SQLite refuses one of them at once instead of letting it wait: so it is asked again.
    """
    ends_s = time.monotonic() + patience_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= ends_s:
                raise
        time.sleep(_ASK_AGAIN_S)
