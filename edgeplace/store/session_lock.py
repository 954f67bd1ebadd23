"""One process at a time works on a session.

The lock is ``flock`` on a file beside the store: the kernel drops it when the process dies, however it dies, and it
holds between containers that share the folder, where process numbers would mean nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from edgeplace.errors import StoreError


class SessionLock:
    """Holds the lock of one session until :meth:`release` or the end of the process.

    Args:
        store_path: The store's file; ``None`` for one in memory, which no other process can see.
        session_id: Which session.

    Raises:
        StoreError: Another process, or another object of this one, works on that session.
    """

    def __init__(self, store_path: Path | None, session_id: int) -> None:
        self._path = None if store_path is None else Path(f"{store_path}.session-{session_id}.lock")
        self._descriptor = None if self._path is None else self._acquire(self._path)

    def release(self) -> None:
        """Let others have the session. A second call does nothing."""
        if self._descriptor is None or self._path is None:
            return
        # Removed while still held, so that nobody's lock file vanishes under them.
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = None

    def _acquire(self, path: Path) -> int:
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise StoreError(
                    f"the session's lock cannot be made: {error.strerror}",
                    where=str(path),
                    hint="make the store's folder writable, or choose another store",
                ) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                raise StoreError(
                    "this search is running in another process",
                    where=str(path),
                    hint="wait for it, or start one of your own without --resume",
                ) from error
            if _is_still(path, descriptor):
                return descriptor
            os.close(descriptor)  # its last holder removed it between our open and our lock


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
