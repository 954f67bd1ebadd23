"""The contract of a transport: a way to run commands on a board, talk to one, and put files there.

A transport knows nothing of what the commands do. To add one: subclass :class:`Transport` in a file of its own,
name it in :func:`edgeplace.transport.transport_for` and in the catalog, and run the contract tests over it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, ClassVar, Union

from edgeplace.errors import LinkError

Buffer = Union[bytes, bytearray, memoryview]
Data = Union[Buffer, Sequence[Buffer]]
"""Bytes of a file, whole or in pieces that follow each other."""


class CommandTimeoutError(LinkError):
    """A command on the board did not end in the time it was given; it has been ended."""


class HostKeyError(LinkError):
    """The board's host key is not known, or is another one than before. Nothing was sent to it.

    Attributes:
        fingerprint: ``SHA256:...`` of the key the board shows, as OpenSSH prints it.
        known_hosts_line: The line that would make the key trusted.
        changed: Another key is known for this name (an unknown name otherwise).
    """

    def __init__(
        self,
        message: str,
        *,
        fingerprint: str,
        known_hosts_line: str,
        changed: bool,
        hint: str = "",
        where: str = "",
    ) -> None:
        super().__init__(message, hint=hint, where=where)
        self.fingerprint = fingerprint
        self.known_hosts_line = known_hosts_line
        self.changed = changed


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A command that has ended. ``returncode`` is -1 when a signal ended it or the board did not say."""

    returncode: int
    stdout: bytes
    stderr: bytes


def command_line(argv: Sequence[str]) -> str:
    """``argv`` as one line for a POSIX shell: the only place where arguments are quoted.

    Raises:
        ValueError: ``argv`` is empty or an argument holds a NUL character.
    """
    if not argv:
        raise ValueError("a command needs at least a program")
    if any("\0" in argument for argument in argv):
        raise ValueError("a command's argument cannot hold a NUL character")
    return " ".join(shlex.quote(argument) for argument in argv)


def pieces_of(data: Data) -> list[memoryview]:
    """``data`` as flat byte views, without copying."""
    parts: Iterable[Buffer] = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
    return [memoryview(part).cast("B") for part in parts]


def sha256_of(pieces: Iterable[memoryview]) -> str:
    """Hash of pieces that follow each other."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def open_log(log: Path) -> FileIO:
    """``log`` opened to append to, unbuffered, readable by nobody else.

    Raises:
        LinkError: It cannot be opened.
    """
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LinkError(
            f"the agent's log cannot be written: {error.strerror or error}",
            where=str(log),
            hint="set XDG_STATE_HOME to a folder you may write",
        ) from error
    return FileIO(descriptor, "ab")


class Stream(ABC):
    """A running command's stdin and stdout. What it writes to stderr goes to a log file and is never mixed in.

    The owner reads ``reader`` in one thread and writes ``writer`` in one thread. Both are buffered binary files:
    ``read(n)`` waits for ``n`` bytes and gives fewer only at the end; errors are :class:`OSError`.
    """

    reader: BinaryIO
    writer: BinaryIO

    @abstractmethod
    def exit_status(self, timeout_s: float = 0.0) -> int | None:
        """How the command ended, waiting up to ``timeout_s``: exit code, negative signal number, or ``None`` when
        it still runs or nothing is known (SSH does not tell after a lost connection or for an ended-by-signal).
        When it has ended, the log is complete, as far as ``timeout_s`` allows."""

    @abstractmethod
    def abort(self) -> None:
        """End the command at once. Callable from any thread and more than once; a blocked read sees the end of
        the stream, a blocked write an :class:`OSError`. Never blocks for more than a few seconds."""

    @abstractmethod
    def close(self, grace_s: float = 2.0) -> None:
        """Close stdin, give the command ``grace_s`` to end by itself, then :meth:`abort`. Idempotent."""


class Transport(ABC):
    """A way to one board. Not to be used by two threads at once, except for :meth:`Stream.abort`.

    Methods that talk to the board connect first when there is no connection, and raise
    :class:`~edgeplace.errors.LinkError` with ``where`` and ``hint`` when the way there does not work.

    Attributes:
        name: What the transport is called in profiles and addresses.
        python: The Python to start on the board when nobody says otherwise.
    """

    name: ClassVar[str]
    python: str = "python3"

    @abstractmethod
    def describe(self) -> str:
        """The address as a person would write it."""

    @abstractmethod
    def connect(self) -> None:
        """Open the connection; nothing happens when it is open and alive."""

    @abstractmethod
    def alive(self) -> bool:
        """True while the connection is known to work; a board that froze is not noticed here."""

    @abstractmethod
    def work_dir(self) -> str:
        """Absolute path of the board's folder for everything we put there (made when missing, mode 0700)."""

    @abstractmethod
    def run(self, argv: Sequence[str], timeout_s: float, stdin: Data = b"") -> CompletedRun:
        """Run a command to its end.

        Raises:
            CommandTimeoutError: It did not end within ``timeout_s`` seconds.
            LinkError: The connection broke.
        """

    @abstractmethod
    def open_stream(self, argv: Sequence[str], log: Path) -> Stream:
        """Start a command to talk with; its stderr is appended to the file ``log``.

        Raises:
            LinkError: It could not be started.
        """

    @abstractmethod
    def put_file(self, data: Data, remote_path: str, mode: int = 0o600) -> bool:
        """Make ``remote_path`` a file with exactly these bytes.

        The bytes go to a temporary name beside it, their hash is checked there, and the file is renamed: a reader
        never sees a part of it. When the file is there with the same hash, nothing is sent.

        Returns:
            True when bytes were sent.

        Raises:
            LinkError: The connection broke or the board could not write (disk full, no permission).
        """

    @abstractmethod
    def close(self) -> None:
        """End the connection. Idempotent; the transport can be used (and connects) again."""

    def __enter__(self) -> Transport:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
