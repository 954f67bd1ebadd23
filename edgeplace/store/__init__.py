"""The record of every measurement: sessions that can be resumed, support found by trying, reference outputs.

The only importer of sqlalchemy.
"""

from edgeplace.store.records import Record, RecordKind, SessionSummary, Support, Unfinished, session_key
from edgeplace.store.session import Session
from edgeplace.store.store import Store, default_store_path

__all__ = [
    "Record",
    "RecordKind",
    "Session",
    "SessionSummary",
    "Store",
    "Support",
    "Unfinished",
    "default_store_path",
    "session_key",
]
