"""Child processes of this machine as a board."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from processes import is_gone

from edgeplace.boards.profile import SshSettings
from edgeplace.errors import InputError, LinkError
from edgeplace.transport import CommandTimeoutError, LocalTransport, SshTarget, transport_for
from edgeplace.transport.base import command_line
from edgeplace.transport.local import LocalStream

ECHO = "import sys\nfor line in sys.stdin.buffer:\n sys.stdout.buffer.write(line)\n sys.stdout.buffer.flush()"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture
def board(tmp_path: Path) -> LocalTransport:
    return LocalTransport(work_dir=tmp_path / "work")


def test_a_stream_talks_both_ways_and_keeps_stderr_apart(board: LocalTransport, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import sys; print('to the log', file=sys.stderr, flush=True)\n" + ECHO
    stream = board.open_stream(python(code), log)
    stream.writer.write(b"hello\n")
    stream.writer.flush()
    assert stream.reader.read(6) == b"hello\n"
    assert stream.exit_status() is None
    stream.close()
    assert stream.exit_status() == 0
    assert log.read_text() == "to the log\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_command_that_ends_by_itself_is_reaped_without_being_closed(
    board: LocalTransport, tmp_path: Path
) -> None:
    stream = board.open_stream(python("raise SystemExit(7)"), tmp_path / "log")
    assert isinstance(stream, LocalStream)
    assert stream.reader.read(1) == b""
    assert stream.exit_status(timeout_s=20) == 7
    assert is_gone(stream.pid)
    stream.close()


def test_the_child_is_not_in_our_session(board: LocalTransport, tmp_path: Path) -> None:
    stream = board.open_stream(
        python("import os; print(os.getsid(0), flush=True)\n" + ECHO), tmp_path / "log"
    )
    assert int(stream.reader.readline()) != os.getsid(0)
    stream.close()


def test_closing_ends_a_command_that_ignores_the_end_of_its_input_and_sigterm(
    board: LocalTransport, tmp_path: Path
) -> None:
    code = "import signal, sys, threading; signal.signal(15, signal.SIG_IGN); print('on', flush=True)\nthreading.Event().wait()"
    stream = board.open_stream(python(code), tmp_path / "log")
    assert stream.reader.readline() == b"on\n"
    stream.close(grace_s=0.1)
    assert stream.exit_status() == -signal.SIGKILL


def test_grandchildren_end_with_the_child(board: LocalTransport, tmp_path: Path) -> None:
    fifo = tmp_path / "held by the grandchild"
    os.mkfifo(fifo)
    grandchild = f"import time; held = open({str(fifo)!r}, 'w'); time.sleep(600)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {grandchild!r}])\n" + ECHO
    stream = board.open_stream(python(code), tmp_path / "log")
    with fifo.open() as held:  # waits until the grandchild has opened it
        stream.close()
        assert held.read() == ""  # waits until nobody holds it any more


@pytest.mark.parametrize("blocked", ["read", "write"])
def test_abort_wakes_a_thread_that_waits_for_a_frozen_child(
    board: LocalTransport, tmp_path: Path, blocked: str
) -> None:
    stream = board.open_stream(python("print('on', flush=True)\n" + ECHO), tmp_path / "log")
    assert isinstance(stream, LocalStream)
    assert stream.reader.readline() == b"on\n"
    os.kill(stream.pid, signal.SIGSTOP)
    woken = threading.Event()

    def wait() -> None:
        with contextlib.suppress(OSError):
            if blocked == "read":
                stream.reader.read(1)
            else:
                stream.writer.write(bytes(16 << 20))
        woken.set()

    threading.Thread(target=wait, daemon=True).start()
    stream.abort()
    assert woken.wait(20)
    stream.close()


def test_run_gives_everything_and_takes_input(board: LocalTransport) -> None:
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1]); print('e', file=sys.stderr); sys.exit(3)"
    done = board.run(python(code), 20, stdin=[b"ab", b"c"])
    assert (done.returncode, done.stdout, done.stderr) == (3, b"cba", b"e\n")


def test_run_ends_what_takes_too_long(board: LocalTransport) -> None:
    with pytest.raises(CommandTimeoutError, match="did not end within"):
        board.run(python("import time; time.sleep(600)"), 0.2)


def test_a_program_that_is_not_there_is_explained(board: LocalTransport, tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="cannot start '/no/such'"):
        board.open_stream(["/no/such"], tmp_path / "log")
    with pytest.raises(LinkError, match="cannot start '/no/such'"):
        board.run(["/no/such"], 1)


def test_put_file_writes_once_and_repairs_what_is_damaged(board: LocalTransport) -> None:
    path = Path(board.work_dir()) / "sub" / "file"
    assert board.put_file([b"ab", memoryview(b"c")], str(path), 0o640)
    assert path.read_bytes() == b"abc"
    assert path.stat().st_mode & 0o777 == 0o640
    assert not board.put_file(b"abc", str(path), 0o640)
    path.write_bytes(b"ab")
    assert board.put_file(b"abc", str(path), 0o640)
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(b"abc").digest()
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_put_file_leaves_nothing_behind_when_it_fails(board: LocalTransport) -> None:
    folder = Path(board.work_dir()) / "target"
    folder.mkdir()
    with pytest.raises(LinkError, match="cannot write"):
        board.put_file(b"abc", str(folder))
    assert [entry.name for entry in folder.parent.iterdir()] == ["target"]


def test_the_work_folder_is_ours_alone(board: LocalTransport) -> None:
    assert Path(board.work_dir()).stat().st_mode & 0o777 == 0o700


def test_a_work_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LinkError, match="work folder"):
        LocalTransport(work_dir=tmp_path / "file" / "work").work_dir()


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["true"], "true"),
        (["sh", "-c", "echo $HOME"], "sh -c 'echo $HOME'"),
        (["cat", "it's; rm -rf /"], """cat 'it'"'"'s; rm -rf /'"""),
        (["x", ""], "x ''"),
    ],
)
def test_arguments_are_quoted(argv: list[str], line: str) -> None:
    assert command_line(argv) == line


@pytest.mark.parametrize("argv", [[], ["a\0b"]])
def test_arguments_that_cannot_be_are_refused(argv: list[str]) -> None:
    with pytest.raises(ValueError):
        command_line(argv)


@pytest.mark.parametrize(
    ("address", "host", "port", "user"),
    [
        ("ssh://pi@rpi5.lan:2222", "rpi5.lan", 2222, "pi"),
        ("ssh://rpi5", "rpi5", 22, ""),
        ("ssh://pi@[fe80::1]:22/", "fe80::1", 22, "pi"),
    ],
)
def test_addresses(address: str, host: str, port: int, user: str) -> None:
    target = SshTarget.of(address, SshSettings())
    assert (target.host, target.port, target.user) == (host, port, user)


def test_the_profile_gives_what_the_address_leaves_out() -> None:
    profile = SshSettings(user="pi", port=2200, identity_file="~/key", known_hosts="/known")
    target = SshTarget.of("ssh://rpi5", profile)
    assert (target.user, target.port) == ("pi", 2200)
    assert (target.identity_file, target.known_hosts) == (Path.home() / "key", Path("/known"))
    other = SshTarget.of("ssh://me@rpi5:23", profile)
    assert (other.user, other.port) == ("me", 23)


@pytest.mark.parametrize(
    "address",
    ["ssh://", "ssh://pi:secret@host", "ssh://host:0", "ssh://host:99999", "ssh://host:x", "ssh://host/path",
     "ssh://-oProxyCommand=x", "http://host", "serial:/dev/ttyUSB0", ""],
)  # fmt: skip
def test_addresses_that_are_none_are_refused(address: str) -> None:
    with pytest.raises(InputError):
        transport_for(address)


def test_a_password_is_not_repeated_in_the_error() -> None:
    with pytest.raises(InputError) as caught:
        transport_for("ssh://pi:secret@host")
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_transport_for_gives_the_right_one(tmp_path: Path) -> None:
    assert transport_for("local").name == "local"
    board = transport_for("ssh://pi@rpi5:23")
    assert (board.name, board.describe()) == ("ssh", "ssh://pi@rpi5:23")
