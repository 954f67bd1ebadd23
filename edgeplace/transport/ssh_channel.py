"""The two ends of an SSH channel as binary files, and what else keeps a channel moving."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable

import paramiko

from edgeplace.transport.base import Buffer

CHUNK_BYTES = 1 << 18
NOT_OS_FAILURES = (paramiko.SSHException, paramiko.SFTPError, EOFError)
LINK_FAILURES = (*NOT_OS_FAILURES, OSError)
"""What paramiko raises when a connection or a channel ends under it."""

_MAX_CHATTER_BYTES = 1 << 20


class ChannelReader(io.RawIOBase):
    """stdout of a channel, from behind the line with which the command announces itself."""

    def __init__(self, channel: paramiko.Channel, word: bytes, on_chatter: Callable[[bytes], object]) -> None:
        self._channel = channel
        self._word = b"\n" + word + b" "
        self._on_chatter = on_chatter
        self._announced = False
        self._left = b""
        self.remote_pid = 0
        """Process id of the command on the board; 0 until it has announced itself."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:  # type: ignore[override]
        if not self._announced:
            self._skip_chatter()
        view = memoryview(buffer).cast("B")
        data = self._left[: len(view)] or self._channel.recv(len(view))
        self._left = self._left[len(view) :]
        view[: len(data)] = data
        return len(data)

    def _skip_chatter(self) -> None:
        seen = b""
        while True:
            before, word, after = seen.partition(self._word)
            if word and b"\n" in after:
                pid, _, self._left = after.partition(b"\n")
                self.remote_pid = int(pid) if pid.isdigit() else 0
                break
            if len(seen) > _MAX_CHATTER_BYTES:
                raise OSError("the board's login shell prints without end instead of starting the command")
            data = self._channel.recv(1 << 16)
            if not data:
                before = seen
                break
            seen += data
        self._announced = True
        if before:
            self._on_chatter(before)


class ChannelWriter(io.RawIOBase):
    """stdin of a channel."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:  # type: ignore[override]
        try:
            view = memoryview(data).cast("B")[:CHUNK_BYTES]
            send_all(self._channel, view)
            return len(view)
        except NOT_OS_FAILURES as error:
            raise BrokenPipeError(str(error)) from error


def send_all(channel: paramiko.Channel, data: memoryview) -> None:
    """All of ``data``; paramiko wants bytes, so a piece at a time is copied."""
    try:
        for start in range(0, len(data), CHUNK_BYTES):
            channel.sendall(bytes(data[start : start + CHUNK_BYTES]))
    except NOT_OS_FAILURES as error:
        raise BrokenPipeError(str(error)) from error


def drain_stderr(channel: paramiko.Channel, sink: Callable[[bytes], object]) -> threading.Thread:
    """Give what comes on stderr to ``sink`` until it ends. Undrained it would fill the window and stop stdout."""

    def drain() -> None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the log was closed meanwhile
            while data := channel.recv_stderr(1 << 16):
                sink(data)

    thread = threading.Thread(target=drain, name="drain-stderr", daemon=True)
    thread.start()
    return thread
