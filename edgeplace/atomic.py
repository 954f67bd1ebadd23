"""Write files and folders so that others see the old one or the new one, never a part of it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from edgeplace.errors import OutputError

Piece = bytes | bytearray | memoryview

_PREFIX = ".edgeplace-"
"""How temporary names begin; not with the final name, which may be as long as a name can be."""


def write_atomic(path: str | Path, pieces: Iterable[Piece], *, mode: int = 0o666) -> None:
    """Write a file: under a temporary name in the same folder, to the disk, then renamed over ``path``.

    Missing parent folders are made. ``mode`` is lessened by the process's umask, as for any new file. The pieces are
    written one by one; none is kept.

    Raises:
        OutputError: It could not be written (no permission, disk full ...). ``path`` is as it was, and nothing
            half-written is left.
    """
    path = Path(path)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_PREFIX, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as stream:
                for piece in pieces:
                    stream.write(piece)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, mode & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(path.parent)


@contextlib.contextmanager
def folder_atomic(path: str | Path) -> Iterator[Path]:
    """A folder that appears whole: ``with folder_atomic(path) as scratch`` fills ``scratch``, then it becomes ``path``.

    A folder that was at ``path`` is replaced when it holds nothing but what is written anew; one with other files in it
    is somebody's, and is left alone. When the block ends with an exception, ``path`` is as it was.

    Raises:
        OutputError: It could not be written, or ``path`` is there and not a folder, or holds other files.
    """
    path = Path(path)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "there is a file of this name", str(path))
        scratch = Path(tempfile.mkdtemp(dir=path.parent, prefix=_PREFIX, suffix=".tmp"))
        os.chmod(scratch, 0o777 & ~_umask())
    try:
        with _explained(path):
            yield scratch
            _refuse_to_lose_files(scratch, path)
            _put_in_place(scratch, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _refuse_to_lose_files(scratch: Path, path: Path) -> None:
    """Other files than those written anew are not ours to remove."""
    if not path.is_dir():
        return
    others = sorted({entry.name for entry in path.iterdir()} - {entry.name for entry in scratch.iterdir()})
    if others:
        raise OutputError(
            f"the folder holds other files ({', '.join(others[:3])}), which would be lost",
            where=str(path),
            hint="name a new folder, or empty this one first",
        )


def _put_in_place(scratch: Path, path: Path) -> None:
    """Rename a finished folder to its name; what was there is taken back when that fails."""
    if not path.exists():
        os.rename(scratch, path)
    else:
        old = Path(tempfile.mkdtemp(dir=path.parent, prefix=_PREFIX, suffix=".old"))
        os.rename(path, old)  # replaces the empty folder just made
        try:
            os.rename(scratch, path)
        except BaseException:
            os.rename(old, path)
            raise
        shutil.rmtree(old, ignore_errors=True)
    _sync_folder(path.parent)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Operating system errors as an :class:`OutputError` that says what to do."""
    try:
        yield
    except OSError as error:
        hint = {
            errno.EACCES: f"choose another place, or allow writing in {path.parent}",
            errno.EPERM: f"choose another place, or allow writing in {path.parent}",
            errno.EROFS: "choose a place that is not mounted read-only",
            errno.ENOSPC: "the disk is full: make room, or choose another place",
            errno.EDQUOT: "your quota is used up: make room, or choose another place",
        }.get(error.errno or 0, "")
        raise OutputError(
            f"cannot be written: {error.strerror or error}", where=str(path), hint=hint
        ) from error


def _umask() -> int:
    """The process's umask; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Bring the rename itself to the disk, where the file system can do that."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
