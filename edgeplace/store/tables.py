"""The tables of the store, format 1. Times are UTC in ISO 8601, structured values are JSON text."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

FORMAT = 1
"""Grows with every change an older EdgePlace could not read."""

metadata = MetaData()

store_facts = Table(
    "edgeplace_store",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", String, nullable=False, index=True),
    Column("facts", Text, nullable=False),
    Column("created_at", String, nullable=False),
    Column("finished_at", String),
    Column("result", Text),
    sqlite_autoincrement=True,
)

measurements = Table(
    "measurements",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("session_id", ForeignKey("sessions.id"), nullable=False),
    Column("kind", String, nullable=False),
    Column("plan_id", String, nullable=False),
    Column("placement_id", String, nullable=False),
    Column("platforms", Text, nullable=False),
    Column("started_at", String, nullable=False),
    # The END: `ended_at` with a payload, or with the reason why the run was given up.
    Column("ended_at", String),
    Column("payload", Text),
    Column("given_up", Text),
    Index("measurements_by_session", "session_id", "id"),
    sqlite_autoincrement=True,
)

support = Table(
    "support",
    metadata,
    Column("segment_sha256", String, primary_key=True),
    Column("platform_hash", String, primary_key=True),
    Column("runtime", String, primary_key=True),
    Column("failure", Text),
    Column("time_ms", Float),
    Column("details", Text, nullable=False),
    Column("recorded_at", String, nullable=False),
)

reference_outputs = Table(
    "reference_outputs",
    metadata,
    Column("key", String, primary_key=True),
    Column("sha256", String, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    # A counter, not a time: two uses within one tick of the clock stay in order.
    Column("last_use", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
