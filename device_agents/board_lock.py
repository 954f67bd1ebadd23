"""One agent at a time works in a folder: two hosts that measure on one board spoil each other's numbers.

A host that lost its link comes back before the board has noticed: its old agent still waits on a dead connection and
holds the lock. So the lock says whose agent holds it, and an agent of the same host ends its predecessor.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from device_agents.protocol import RequestError

LOG = logging.getLogger(__name__)

TAKEOVER_S = 10.0
_LOOK_EVERY_S = 0.05


class BoardLock:
    """The lock of one folder, held from :meth:`take` to the end of the process.

    Args:
        path: The lock's file; made when it is not there.
        owner: Names the host's session, the same before and after it reconnects. Empty: never ends another agent.
    """

    def __init__(self, path: Path, owner: str = "") -> None:
        self._path = path
        self._owner = owner
        self._descriptor: Optional[int] = None

    def take(self, alive: Callable[[], None] = lambda: None) -> None:
        """Take the lock; does nothing when it is held already.

        Args:
            alive: Called every now and then while a predecessor ends.

        Raises:
            RequestError: ``busy``: an agent of another host holds it, or the predecessor does not end.
            OSError: The file cannot be opened.
        """
        if self._descriptor is not None:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _try_lock(descriptor):
                self._take_over(descriptor, alive)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "owner": self._owner}).encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _take_over(self, descriptor: int, alive: Callable[[], None]) -> None:
        holder = _holder(descriptor)
        pid = holder.get("pid")
        busy = RequestError(
            f"another agent works on this board (process {pid or 'unknown'}, folder {self._path.parent})",
            "busy",
        )
        if not self._owner or holder.get("owner") != self._owner or not isinstance(pid, int) or pid <= 1:
            raise busy
        LOG.warning("ending process %d, the agent of this host's earlier connection", pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + TAKEOVER_S
        while not _try_lock(descriptor):  # flock knows no limit
            if time.monotonic() >= end:
                raise busy
            alive()
            time.sleep(_LOOK_EVERY_S)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> dict[str, Any]:
    try:
        facts = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
