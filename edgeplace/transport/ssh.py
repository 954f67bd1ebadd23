"""A board reached over SSH: one connection with several channels, host keys strictly checked.

The traps this file is built around were measured against OpenSSH and paramiko 5.1:

* paramiko leaves Nagle's algorithm on, which makes some round trips of 1 KB and more take 43 ms;
* opening a channel waits up to an hour by default, and starting a command on it waits for ever;
* a peer that froze (its kernel still acknowledges) is noticed by nothing below our own protocol: every blocking call
  here runs under a timer that closes what it waits for;
* a connection lost while a command runs is no exception but an end of file and the exit status -1;
* a login shell's rc file may print before the command does: commands announce themselves with a line of their own,
  and what came before that line goes to the log.
"""

from __future__ import annotations

import contextlib
import io
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import paramiko

from edgeplace.errors import LinkError
from edgeplace.transport.base import (
    CommandTimeoutError,
    CompletedRun,
    Data,
    Stream,
    Transport,
    command_line,
    open_log,
    pieces_of,
    sha256_of,
)
from edgeplace.transport.ssh_channel import (
    CHUNK_BYTES,
    LINK_FAILURES,
    ChannelReader,
    ChannelWriter,
    drain_stderr,
    send_all,
)
from edgeplace.transport.ssh_login import CHANNEL_TIMEOUT_S, open_client
from edgeplace.transport.ssh_target import SshTarget

LOG = logging.getLogger(__name__)

SCRIPT_TIMEOUT_S = 60.0
"""For hashing, renaming and the like on a slow board with a slow card."""
SLOWEST_BYTES_PER_S = 50_000
"""A transfer that is slower is given up."""
CLOSE_TIMEOUT_S = 2.0
"""For the goodbyes of a channel; what takes longer is given up."""

# Runs on the board, whatever the login shell: announces itself and its process id, then becomes the command.
_ANNOUNCE = 'printf "\\n%s %s\\n" "$0" "$$"; exec "$@"'
_WORK_DIR = 'umask 077; d="${XDG_CACHE_HOME:-$HOME/.cache}/edgeplace"; mkdir -p "$d" && chmod 700 "$d" && cd "$d" && pwd -P'
_SHA256 = 'hash() { if command -v sha256sum >/dev/null; then sha256sum <"$1"; else openssl dgst -sha256 -r <"$1"; fi; }; '
# $1 file, $2 hash, $3 mode: is the file there with that hash?
_IS_THERE = _SHA256 + '[ -f "$1" ] && h=$(hash "$1") && [ "${h%% *}" = "$2" ] && chmod "$3" "$1"'
_HASH_MISMATCH = 65
# $1 temporary file, $2 hash, $3 mode, $4 file
_FINISH = _SHA256 + (
    'h=$(hash "$1") || exit 1; if [ "${h%% *}" != "$2" ]; then rm -f "$1"; exit 65; fi; '
    'chmod "$3" "$1" && mv -f "$1" "$4" || { rm -f "$1"; exit 1; }'
)
_RECEIVE = 'umask 077; cat >"$1" || { rm -f "$1"; exit 1; }'


class SshTransport(Transport):
    """One SSH connection to one board.

    Keys and the ssh-agent authenticate; there are no passwords, and no host key is trusted without being known
    (:func:`~edgeplace.transport.ssh_login.open_client`).
    """

    name = "ssh"

    def __init__(self, target: SshTarget) -> None:
        self.target = target
        self._client: paramiko.SSHClient | None = None
        self._work_dir = ""
        self._sftp_works = True

    def describe(self) -> str:
        return f"ssh://{self._where}"

    @property
    def _where(self) -> str:
        return self.target.describe()

    def alive(self) -> bool:
        link = self._client.get_transport() if self._client is not None else None
        return link is not None and link.is_active()

    def connect(self) -> None:
        if self.alive():
            return
        self.close()
        self._client = open_client(self.target)
        LOG.info("connected to %s", self._where)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def work_dir(self) -> str:
        if not self._work_dir:
            done = self.run(["sh", "-c", _WORK_DIR], CHANNEL_TIMEOUT_S)
            folder = done.stdout.decode(errors="surrogateescape").strip("\n")
            if done.returncode != 0 or not folder.startswith("/"):
                raise LinkError(
                    f"the work folder ~/.cache/edgeplace cannot be made: {_last_line(done.stderr)}",
                    where=self._where,
                    hint="check the home folder's permissions and free space on the board",
                )
            self._work_dir = folder
        return self._work_dir

    def run(self, argv: Sequence[str], timeout_s: float, stdin: Data = b"") -> CompletedRun:
        pieces = pieces_of(stdin)
        channel, reader = self._start(
            argv,
            lambda chatter: LOG.debug("before '%s': %r", argv[0], chatter),
            CHANNEL_TIMEOUT_S,
        )
        errors = bytearray()
        drain = drain_stderr(channel, errors.extend)

        def feed() -> None:  # beside reading: a command that answers while it reads would block us both
            try:
                for piece in pieces:
                    send_all(channel, piece)
                channel.shutdown_write()
            except LINK_FAILURES as error:
                LOG.debug("'%s' did not read all of its input: %s", argv[0], error)

        try:
            with self._limit(timeout_s, channel) as ran_out:
                threading.Thread(target=feed, name="feed-stdin", daemon=True).start()
                output = reader.read()
                status = channel.recv_exit_status()
                drain.join(CLOSE_TIMEOUT_S)
        finally:
            self._close_channel(channel)
        lost = status == -1 and not self.alive()
        if ran_out.is_set():
            raise CommandTimeoutError(f"'{argv[0]}' did not end within {timeout_s:g} s", where=self._where)
        if lost:
            raise self._lost(f"while '{argv[0]}' ran")
        return CompletedRun(status, output, bytes(errors))

    def open_stream(self, argv: Sequence[str], log: Path) -> Stream:
        return _SshStream(self, argv, log)

    def put_file(self, data: Data, remote_path: str, mode: int = 0o600) -> bool:
        pieces = pieces_of(data)
        digest, mode_text = sha256_of(pieces), f"{mode:o}"
        there = self._script(_IS_THERE, remote_path, digest, mode_text)
        if there.returncode == 0:
            return False
        temporary = f"{remote_path}.{secrets.token_hex(6)}.tmp"
        timeout_s = SCRIPT_TIMEOUT_S + sum(map(len, pieces)) / SLOWEST_BYTES_PER_S
        if not (self._sftp_works and self._put_by_sftp(pieces, temporary, timeout_s)):
            received = self.run(["sh", "-c", _RECEIVE, "sh", temporary], timeout_s, pieces)
            if received.returncode != 0:
                raise self._cannot_write(remote_path, _last_line(received.stderr))
        finished = self._script(_FINISH, temporary, digest, mode_text, remote_path)
        if finished.returncode == _HASH_MISMATCH:
            raise self._cannot_write(remote_path, "what arrived has another hash than what was sent")
        if finished.returncode != 0:
            raise self._cannot_write(remote_path, _last_line(finished.stderr))
        return True

    # --- channels ---------------------------------------------------------------------------------------------

    def _start(
        self,
        argv: Sequence[str],
        on_chatter: Callable[[bytes], object],
        timeout_s: float,
    ) -> tuple[paramiko.Channel, ChannelReader]:
        """A channel with the command running on it, and the reader of its stdout."""
        word = f"edgeplace-{secrets.token_hex(8)}"
        line = "exec " + command_line(["sh", "-c", _ANNOUNCE, word, *argv])
        channel = self._open_channel(timeout_s)
        with self._limit(timeout_s, channel):
            try:
                channel.exec_command(line)
            except LINK_FAILURES as error:
                self._close_channel(channel)
                raise self._lost(f"while '{argv[0]}' was started", error) from error
        return channel, ChannelReader(channel, word.encode(), on_chatter)

    def _open_channel(self, timeout_s: float) -> paramiko.Channel:
        self.connect()
        link = self._client.get_transport() if self._client is not None else None
        if link is None:
            raise self._lost("while a channel was opened")
        try:
            return link.open_session(timeout=timeout_s)
        except LINK_FAILURES as error:
            raise self._lost("while a channel was opened", error) from error

    @contextlib.contextmanager
    def _limit(self, timeout_s: float, channel: paramiko.Channel) -> Iterator[threading.Event]:
        """Close ``channel`` (and whatever waits on it wakes up) when the block takes too long; the event says so."""
        ran_out = threading.Event()

        def end() -> None:
            ran_out.set()
            self._close_channel(channel)

        timer = threading.Timer(timeout_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield ran_out
        finally:
            timer.cancel()

    def _close_channel(self, channel: paramiko.Channel) -> None:
        """Close a channel; when even that blocks (the peer is frozen and all buffers are full), the connection."""

        def close() -> None:
            with contextlib.suppress(*LINK_FAILURES):
                channel.close()

        closer = threading.Thread(target=close, name="close-channel", daemon=True)
        closer.start()
        closer.join(CLOSE_TIMEOUT_S)
        if closer.is_alive():
            LOG.warning("%s: the connection does not take anything any more; it is given up", self._where)
            channel.get_transport().close()

    def _lost(self, when: str, error: BaseException | None = None) -> LinkError:
        reason = f": {error}" if error is not None and str(error) else ""
        return LinkError(
            f"the connection broke {when}{reason}",
            where=self._where,
            hint="check that the board is on and reachable, then run the same command again",
        )

    # --- files ------------------------------------------------------------------------------------------------

    def _script(self, script: str, *arguments: str) -> CompletedRun:
        return self.run(["sh", "-c", script, "sh", *arguments], SCRIPT_TIMEOUT_S)

    def _put_by_sftp(self, pieces: list[memoryview], path: str, timeout_s: float) -> bool:
        """Write the file over SFTP; ``False`` when the board has no SFTP that works (tried once)."""
        channel = self._open_channel(CHANNEL_TIMEOUT_S)
        with self._limit(CHANNEL_TIMEOUT_S, channel):
            try:
                channel.invoke_subsystem("sftp")
                sftp = paramiko.SFTPClient(channel)
            except LINK_FAILURES as error:
                self._close_channel(channel)
                if not self.alive():
                    raise self._lost("while SFTP was started", error) from error
                LOG.info("%s: no SFTP (%s); files go through cat", self._where, error)
                self._sftp_works = False
                return False
        with self._limit(timeout_s, channel) as ran_out:
            try:
                with sftp.open(path, "wb") as file:
                    # Without it each 32 KB waits for its answer: 1 MB/s instead of 100.
                    file.set_pipelined(True)
                    for piece in pieces:
                        for start in range(0, len(piece), CHUNK_BYTES):
                            file.write(bytes(piece[start : start + CHUNK_BYTES]))
            except LINK_FAILURES as error:
                if ran_out.is_set() or not self.alive():
                    raise self._lost(f"while {path} was written", error) from error
                raise self._cannot_write(path, str(error)) from error
            finally:
                self._close_channel(channel)
        return True

    def _cannot_write(self, path: str, reason: str) -> LinkError:
        return LinkError(
            f"cannot write {path}: {reason}",
            where=self._where,
            hint="check free space and permissions of that folder on the board",
        )


class _SshStream(Stream):
    """A command on a channel of its own."""

    def __init__(self, transport: SshTransport, argv: Sequence[str], log: Path) -> None:
        self._transport = transport
        self._log = open_log(log)
        try:
            self._channel, self._raw = transport._start(argv, self._log.write, CHANNEL_TIMEOUT_S)
        except BaseException:
            self._log.close()
            raise
        self._drain = drain_stderr(self._channel, self._log.write)
        self.reader = cast(BinaryIO, io.BufferedReader(self._raw, CHUNK_BYTES))
        self.writer = cast(BinaryIO, io.BufferedWriter(ChannelWriter(self._channel), 1 << 16))

    def exit_status(self, timeout_s: float = 0.0) -> int | None:
        self._channel.status_event.wait(timeout_s)
        if not self._channel.exit_status_ready():
            return None
        self._drain.join(timeout_s)  # its last words may still be on their way to the log
        status = self._channel.exit_status
        return None if status == -1 else status

    def abort(self) -> None:
        running = not self._channel.exit_status_ready()
        self._transport._close_channel(self._channel)
        # sshd leaves a command alone whose channel is closed; one that hangs would keep the board busy for ever.
        if running and self._raw.remote_pid and self._transport.alive():
            with contextlib.suppress(LinkError):
                argv = ["kill", "-KILL", str(self._raw.remote_pid)]
                killer, _ = self._transport._start(argv, lambda chatter: None, CLOSE_TIMEOUT_S)
                killer.status_event.wait(CLOSE_TIMEOUT_S)
                self._transport._close_channel(killer)

    def close(self, grace_s: float = 2.0) -> None:
        with (
            self._transport._limit(CLOSE_TIMEOUT_S, self._channel),
            contextlib.suppress(*LINK_FAILURES),
        ):
            self._channel.shutdown_write()
        self.exit_status(grace_s)
        self.abort()
        for file in (self.writer, self.reader):
            with contextlib.suppress(OSError):
                file.close()
        self._drain.join(CLOSE_TIMEOUT_S)
        self._log.close()


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no reason was given"
