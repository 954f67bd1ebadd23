"""Content-addressed blobs on the board: named by their hash, size-capped, least recently used goes first.

Everything lies under one folder, ``ROOT/blobs/ab/abcdef...``. A blob is written to a temporary name, hashed while it is
written, and renamed only when the hash is the promised one, so a file under a blob's name is always complete and right.
What lay there when the agent started (a power cut may have kept the name and lost the bytes) is hashed again at its first
use. A use sets the file's modification time; the order survives a restart of the agent.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from device_agents.protocol import RequestError

DEFAULT_CAP_BYTES = 4 * 1024**3
CHUNK_BYTES = 1024 * 1024
_HASH = re.compile(r"[0-9a-f]{64}\Z")
_TEMPORARY_PREFIX = "incoming-"


class Source(Protocol):
    """Where bytes come from: gives at most ``size`` of them, nothing when there are none left."""

    def read(self, size: int) -> bytes:
        """The next bytes, one at least until the end."""


def checked_hash(value: Any) -> str:
    """``value`` when it is a SHA-256 in lower-case hex, so that it can be part of a path.

    Raises:
        RequestError: It is anything else.
    """
    if not isinstance(value, str) or not _HASH.match(value):
        raise RequestError(f"{str(value)[:80]!r} is no SHA-256 (64 lower-case hex digits)")
    return value


def make_root(root: Path) -> None:
    """Make the agent's folder, for its owner only (mode 0700).

    Raises:
        OSError: It cannot be made or written, or belongs to somebody else.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    facts = root.stat()
    if facts.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "the folder belongs to another user", str(root))
    if facts.st_mode & 0o077:
        root.chmod(0o700)
    with tempfile.TemporaryFile(
        dir=root
    ):  # says now, not in the middle of a measurement, that nothing can be written
        pass


class BlobStore:
    """The blobs under one folder. One process uses it at a time.

    Args:
        folder: Where blobs lie; made when it is not there.
        cap_bytes: How many bytes of blobs are kept at most.
        alive: Called every now and then while a large file is read or written.
    """

    def __init__(
        self,
        folder: Path,
        cap_bytes: int = DEFAULT_CAP_BYTES,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.cap_bytes = cap_bytes
        self.alive = alive
        self.total_bytes = 0
        self._sizes: OrderedDict[str, int] = OrderedDict()  # least recently used first
        self._unproved: set[str] = set()  # found at the start, not hashed since
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._read_folder()

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._sizes

    def path(self, sha256: str) -> Path:
        """Where the blob lies or would lie."""
        return self.folder / sha256[:2] / checked_hash(sha256)

    def missing(self, hashes: Iterable[str]) -> list[str]:
        """Those of ``hashes`` that are not here, each once. The others count as used now."""
        absent = dict.fromkeys(sha256 for sha256 in hashes if not self._touch(sha256))
        return list(absent)

    def paths(self, hashes: Iterable[str]) -> dict[str, str]:
        """The files of ``hashes``, which count as used now.

        Raises:
            RequestError: ``missing_blob`` with ``missing``, the hashes that are not here.
        """
        wanted = list(dict.fromkeys(hashes))
        absent = self.missing(wanted)
        if absent:
            raise RequestError(
                f"{len(absent)} of {len(wanted)} blobs are not here", "missing_blob", missing=absent
            )
        return {sha256: str(self.path(sha256)) for sha256 in wanted}

    def put(self, sha256: str, size_bytes: int, source: Source) -> None:
        """Take ``size_bytes`` from ``source`` as the blob ``sha256``.

        Raises:
            RequestError: ``hash_mismatch``, ``too_large`` (over the cap), ``no_space`` or ``io_error``.
        """
        if self._touch(checked_hash(sha256)):
            return
        self._make_room(size_bytes, keep=())
        with self._incoming(sha256, size_bytes) as write:
            for chunk in _chunks(source, size_bytes):
                write(chunk)

    def splice(
        self,
        sha256: str,
        size_bytes: int,
        constants: Sequence[tuple[str, int, int]],
        skeleton_bytes: int,
        skeleton: Source,
    ) -> None:
        """Build the blob ``sha256`` from a skeleton and blobs that are here.

        Args:
            sha256: Hash of the finished file.
            size_bytes: Size of the finished file.
            constants: (hash, offset in the finished file, size), by offset; what they leave is the skeleton's.
            skeleton_bytes: How many bytes ``skeleton`` has.
            skeleton: All other bytes of the file, in order.

        Raises:
            RequestError: ``bad_request`` (the pieces do not make up the file), ``missing_blob``, ``hash_mismatch``,
                ``too_large``, ``no_space`` or ``io_error``.
        """
        gaps = _gaps(size_bytes, constants, skeleton_bytes)
        if self._touch(checked_hash(sha256)):
            return
        paths = self.paths(constant for constant, _, _ in constants)
        for constant, _, size in constants:
            if self._sizes[constant] != size:
                raise RequestError(f"constant {constant} has {self._sizes[constant]} bytes, not {size}")
        self._make_room(size_bytes, keep=paths)
        with self._incoming(sha256, size_bytes) as write:
            for gap, (constant, _, size) in zip(gaps, constants):
                for chunk in _chunks(skeleton, gap):
                    write(chunk)
                with open(paths[constant], "rb") as file:
                    for chunk in _chunks(file, size):
                        write(chunk)
            for chunk in _chunks(skeleton, gaps[-1]):
                write(chunk)

    def clear(self) -> int:
        """Drop every blob; gives the number of bytes that were freed."""
        freed = self.total_bytes
        for sha256 in list(self._sizes):
            self._drop(sha256)
        return freed

    def _read_folder(self) -> None:
        found: list[tuple[float, str, int]] = []
        for leftover in self.folder.glob(f"{_TEMPORARY_PREFIX}*"):
            leftover.unlink()
        for file in self.folder.glob("??/*"):
            if _HASH.match(file.name) and file.name.startswith(file.parent.name):
                facts = file.stat()
                found.append((facts.st_mtime, file.name, facts.st_size))
        for _, sha256, size in sorted(found):
            self._sizes[sha256] = size
            self.total_bytes += size
        self._unproved.update(self._sizes)
        self._drop_oldest(0, keep=())

    def _touch(self, sha256: str) -> bool:
        if checked_hash(sha256) not in self._sizes:
            return False
        try:
            os.utime(self.path(sha256))
            proved = sha256 not in self._unproved or self._prove(sha256)
        except ConnectionError:  # the host's stream, not our file
            raise
        except OSError:  # somebody emptied the folder under us
            proved = False
        if not proved:
            self._drop(sha256)
            return False
        self._sizes.move_to_end(sha256)
        return True

    def _prove(self, sha256: str) -> bool:
        digest = hashlib.sha256()
        with self.path(sha256).open("rb") as file:
            for chunk in _chunks(file, self._sizes[sha256]):
                digest.update(chunk)
                self.alive()
        self._unproved.discard(sha256)
        return digest.hexdigest() == sha256

    def _make_room(self, size_bytes: int, keep: Iterable[str]) -> None:
        if size_bytes > self.cap_bytes:
            raise RequestError(
                f"a blob of {size_bytes} bytes is over the cap of {self.cap_bytes} bytes", "too_large"
            )
        self._drop_oldest(size_bytes, keep)

    def _drop_oldest(self, incoming_bytes: int, keep: Iterable[str]) -> None:
        kept = set(keep)
        for sha256 in list(self._sizes):
            if self.total_bytes + incoming_bytes <= self.cap_bytes:
                return
            if sha256 not in kept:
                self._drop(sha256)
        if self.total_bytes + incoming_bytes > self.cap_bytes:
            raise RequestError(
                f"no room for {incoming_bytes} bytes: {self.total_bytes} of {self.cap_bytes} bytes are in use by "
                "this request",
                "too_large",
            )

    def _drop(self, sha256: str) -> None:
        with suppress(OSError):
            self.path(sha256).unlink()
        self.total_bytes -= self._sizes.pop(sha256)
        self._unproved.discard(sha256)

    @contextmanager
    def _incoming(self, sha256: str, size_bytes: int) -> Iterator[Callable[[bytes], None]]:
        """Give a function that writes; then check size and hash and let the file be the blob ``sha256``."""
        digest = hashlib.sha256()
        written = 0
        target = self.path(sha256)
        temporary = ""
        try:
            target.parent.mkdir(exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=_TEMPORARY_PREFIX)
            with os.fdopen(handle, "wb") as file:

                def write(chunk: bytes) -> None:
                    nonlocal written
                    digest.update(chunk)
                    written += len(chunk)
                    file.write(chunk)
                    self.alive()

                yield write
            if written != size_bytes or digest.hexdigest() != sha256:
                raise RequestError(
                    f"{written} bytes with hash {digest.hexdigest()} came, not {size_bytes} bytes with hash {sha256}",
                    "hash_mismatch",
                )
            os.replace(temporary, target)
        except ConnectionError:  # the host's stream, not our file
            raise
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise RequestError(
                f"cannot write blob {sha256}: {error.strerror or error}", "no_space" if full else "io_error"
            ) from error
        finally:
            with suppress(OSError):
                os.unlink(temporary)
        self._sizes[sha256] = size_bytes
        self.total_bytes += size_bytes


def _gaps(size_bytes: int, constants: Sequence[tuple[str, int, int]], skeleton_bytes: int) -> list[int]:
    """How many skeleton bytes come before each constant, and after the last."""
    gaps: list[int] = []
    position = 0
    for _, offset, size in constants:
        if offset < position:
            raise RequestError(f"constants overlap at offset {offset}")
        gaps.append(offset - position)
        position = offset + size
    gaps.append(size_bytes - position)
    if gaps[-1] < 0 or sum(gaps) != skeleton_bytes:
        raise RequestError(
            f"a skeleton of {skeleton_bytes} bytes and constants up to byte {position} do not make up a file of "
            f"{size_bytes} bytes"
        )
    return gaps


def _chunks(source: Source | BinaryIO, size_bytes: int) -> Iterator[bytes]:
    while size_bytes:
        chunk = source.read(min(size_bytes, CHUNK_BYTES))
        if not chunk:
            return
        size_bytes -= len(chunk)
        yield chunk
