"""This machine as the board: commands are child processes, with the same protocol as over SSH."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

from edgeplace.errors import LinkError
from edgeplace.transport.base import (
    CommandTimeoutError,
    CompletedRun,
    Data,
    Stream,
    Transport,
    open_log,
    pieces_of,
    sha256_of,
)
from edgeplace.user_folders import xdg_folder

_ABORT_WAIT_S = 5.0


class LocalStream(Stream):
    """A child process in a session of its own, so that Ctrl-C in the terminal reaches the host alone.

    stdin and stdout are one socket pair, not pipes: shutting our end down wakes a blocked read and a blocked write
    whatever the child is doing. A thread waits for the child, so it is reaped even when nobody closes the stream.
    """

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        self._socket, theirs = socket.socketpair()
        try:
            with theirs, open_log(log) as stderr:
                self._process = subprocess.Popen(
                    list(argv),
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=stderr,
                    start_new_session=True,
                )
        except BaseException:
            self._socket.close()
            raise
        self.reader = cast(BinaryIO, self._socket.makefile("rb"))
        self.writer = cast(BinaryIO, self._socket.makefile("wb"))
        self._signal_lock = threading.Lock()
        self._reaped = False
        self._ended = threading.Event()
        threading.Thread(target=self._reap, name=f"reap-{self._process.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id of the child, which is also its process group."""
        return self._process.pid

    def exit_status(self, timeout_s: float = 0.0) -> int | None:
        return self._process.returncode if self._ended.wait(timeout_s) else None

    def abort(self) -> None:
        self._signal_group(signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._ended.wait(_ABORT_WAIT_S)

    def close(self, grace_s: float = 2.0) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        if not self._ended.wait(grace_s):
            self._signal_group(signal.SIGTERM)
            self._ended.wait(min(grace_s, 1.0))
        self.abort()
        for file in (self.writer, self.reader):
            with contextlib.suppress(OSError):
                file.close()
        self._socket.close()

    def _signal_group(self, number: int) -> None:
        # The group's id is the child's until it is reaped, and could be anybody's afterwards.
        with self._signal_lock:
            if not self._reaped:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, number)

    def _reap(self) -> None:
        # WNOWAIT: learn of the end without reaping, so that the group's id stays ours while we end what is left.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._signal_group(signal.SIGKILL)
        with self._signal_lock:
            self._reaped = True
            self._process.wait()
        self._ended.set()


class LocalTransport(Transport):
    """Child processes of this machine.

    Args:
        work_dir: Folder for what is put on the "board"; ``~/.cache/edgeplace`` (or below ``XDG_CACHE_HOME``)
            when not given.
        python: The Python the agent runs in; the host's own when not given.
    """

    name = "local"

    def __init__(self, work_dir: Path | None = None, python: str = "") -> None:
        self._work_dir = work_dir
        self.python = python or sys.executable

    def describe(self) -> str:
        return "local"

    def connect(self) -> None:
        """Nothing to open."""

    def alive(self) -> bool:
        return True

    def work_dir(self) -> str:
        folder = self._work_dir or _default_work_dir()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        except OSError as error:
            raise LinkError(
                f"the work folder cannot be used: {error.strerror}",
                where=str(folder),
                hint="set XDG_CACHE_HOME to a folder you may write",
            ) from error
        return str(folder.resolve())

    def run(self, argv: Sequence[str], timeout_s: float, stdin: Data = b"") -> CompletedRun:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise _cannot_start(argv, error) from error
        try:
            stdout, stderr = process.communicate(b"".join(pieces_of(stdin)), timeout=timeout_s)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # not reaped yet: the id is still the child's
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise CommandTimeoutError(
                    f"'{argv[0]}' did not end within {timeout_s:g} s", where=self.describe()
                ) from None
            raise
        returncode = process.returncode if process.returncode >= 0 else -1
        return CompletedRun(returncode, stdout, stderr)

    def open_stream(self, argv: Sequence[str], log: Path) -> LocalStream:
        try:
            return LocalStream(argv, log)
        except OSError as error:
            raise _cannot_start(argv, error) from error

    def put_file(self, data: Data, remote_path: str, mode: int = 0o600) -> bool:
        pieces = pieces_of(data)
        path = Path(remote_path)
        try:
            if path.is_file() and sha256_of([memoryview(path.read_bytes())]) == sha256_of(pieces):
                path.chmod(mode)
                return False
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            try:
                with open(handle, "wb") as file:
                    for piece in pieces:
                        file.write(piece)
                os.chmod(temporary, mode)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            raise LinkError(f"cannot write the file: {error.strerror or error}", where=str(path)) from error
        return True

    def close(self) -> None:
        """Nothing to close; streams are closed by their owners."""


def _default_work_dir() -> Path:
    return xdg_folder("XDG_CACHE_HOME", ".cache") / "edgeplace"


def _cannot_start(argv: Sequence[str], error: OSError) -> LinkError:
    return LinkError(
        f"cannot start '{argv[0]}': {error.strerror or error}",
        where="local",
        hint="check that the program exists and may be executed",
    )
