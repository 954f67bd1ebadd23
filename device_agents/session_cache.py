"""Compiled segments that stay in the worker, so that plans which share a segment compile it once."""

from __future__ import annotations

import itertools
import json
import logging
import resource
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Callable, Optional

from device_agents.runtimes import Session, StageError, open_session

LOG = logging.getLogger(__name__)

_SHARE_OF_MEMORY = 1 / 3
_FALLBACK_BYTES = 256 * 1024 * 1024

Key = tuple[str, str, str, int]


class SessionCache:
    """Sessions by platform, file and shapes; the least recently used goes first when the cap is passed.

    Owns its sessions: callers must not close them. What is pinned for the job at hand is never evicted, so the cap
    can be passed while a plan larger than the cap runs.
    """

    def __init__(self, cap_bytes: Optional[int] = None) -> None:
        self._cap_bytes = default_cap_bytes() if cap_bytes is None else cap_bytes
        self._sessions: OrderedDict[Key, Session] = OrderedDict()
        self._pinned: set[Key] = set()

    @property
    def size_bytes(self) -> int:
        """What all sessions hold together, by their own estimates."""
        return sum(session.memory_bytes for session in self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def begin_job(self) -> None:
        """Nothing is needed by an earlier job any more."""
        self._pinned.clear()

    def get(
        self,
        platform: dict[str, Any],
        sha256: str,
        path: str,
        *,
        taken: set[Key],
        input_shapes: Optional[dict[str, Sequence[int]]] = None,
        progress: Callable[[str], None],
    ) -> tuple[Session, bool]:
        """A session for the file, and whether it was opened just now. It is pinned until the next job.

        Args:
            platform: The platform's whole description; its name does not matter.
            sha256: Hash of the file.
            path: Where the file is.
            taken: The sessions that the plan at hand has already; the one given is added. Equal segments of one plan
                need a session each, for their state and their outputs.
            input_shapes: As for :func:`open_session`.
            progress: Told the stages of opening.

        Raises:
            StageError: The file cannot be opened on that platform.
        """
        description = json.dumps({**platform, "name": None}, sort_keys=True)
        shapes = json.dumps(input_shapes, sort_keys=True)
        key = next(key for n in itertools.count() if (key := (description, sha256, shapes, n)) not in taken)
        taken.add(key)
        session = self._sessions.get(key)
        if session is not None and session.broken:
            self._close(key)
            session = None
        opened = session is None
        if session is None:
            session = self._open(platform, path, input_shapes, progress)
            self._sessions[key] = session
        self._sessions.move_to_end(key)
        self._pinned.add(key)
        self._evict()
        return session, opened

    def _open(
        self,
        platform: dict[str, Any],
        path: str,
        input_shapes: Optional[dict[str, Sequence[int]]],
        progress: Callable[[str], None],
    ) -> Session:
        try:
            return open_session(platform, path, input_shapes=input_shapes, progress=progress)
        except StageError as error:
            if error.kind != "out_of_memory" or not self._drop_unpinned():
                raise
            LOG.info("out of memory; opening again without the kept sessions")
        return open_session(platform, path, input_shapes=input_shapes, progress=progress)

    def _evict(self) -> None:
        for key in [key for key in self._sessions if key not in self._pinned]:
            if self.size_bytes <= self._cap_bytes:
                return
            self._close(key)

    def _drop_unpinned(self) -> int:
        keys = [key for key in self._sessions if key not in self._pinned]
        for key in keys:
            self._close(key)
        return len(keys)

    def _close(self, key: Key) -> None:
        self._sessions.pop(key).close()

    def clear(self) -> None:
        """Close every session."""
        self._pinned.clear()
        self._drop_unpinned()


def default_cap_bytes() -> int:
    """A third of the memory that is free when the worker starts, or of its address space limit when that is less."""
    free = _FALLBACK_BYTES * 3
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    free = int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        LOG.debug("no /proc/meminfo here")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        free = min(free, limit)
    return int(free * _SHARE_OF_MEMORY)
