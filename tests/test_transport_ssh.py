"""The SSH transport against a real OpenSSH server."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from sshd import Sshd, make_key

from edgeplace.errors import LinkError
from edgeplace.transport import CommandTimeoutError, HostKeyError, SshTarget
from edgeplace.transport import ssh as ssh_module
from edgeplace.transport.ssh import SshTransport
from edgeplace.transport.ssh_login import USER_TIMEOUT_MS

pytestmark = pytest.mark.ssh
CHATTER = "echo 'Welcome to the board!'; echo 'and a warning' >&2; printf 'no newline'\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with contextlib.closing(_Closing(Sshd(tmp_path_factory.mktemp("sshd")))) as closing:
        yield closing.server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Sshd]:
    """A server for tests that change or break it."""
    with contextlib.closing(_Closing(Sshd(tmp_path / "own"))) as closing:
        yield closing.server


class _Closing:
    def __init__(self, server: Sshd) -> None:
        self.server = server

    def close(self) -> None:
        self.server.stop()


def target_for(server: Sshd, **changes: object) -> SshTarget:
    values: dict[str, object] = {
        "host": "127.0.0.1",
        "port": server.port,
        "user": getpass.getuser(),
        "identity_file": server.user_key,
        "known_hosts": server.known_hosts,
    }
    return SshTarget(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def board(server: Sshd) -> Iterator[SshTransport]:
    with SshTransport(target_for(server)) as transport:
        yield transport  # type: ignore[misc]


def test_nagle_is_off_and_a_dead_line_is_noticed_by_the_kernel(board: SshTransport) -> None:
    assert board._client is not None
    link = board._client.get_transport()
    assert link is not None
    assert link.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert link.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == USER_TIMEOUT_MS


def test_run_gives_everything_and_takes_input(board: SshTransport) -> None:
    done = board.run(["sh", "-c", 'cat; echo "$1" >&2; exit 3', "sh", "it's $HOME"], 20, stdin=[b"ab", b"c"])
    assert (done.returncode, done.stdout, done.stderr) == (3, b"abc", b"it's $HOME\n")


def test_run_moves_a_lot_both_ways(board: SshTransport) -> None:
    # More than all buffers and windows hold: needs reading while writing.
    data = os.urandom(1 << 20) * 9
    done = board.run(["cat"], 60, stdin=data)
    assert done.stdout == data


def test_run_ends_what_takes_too_long_and_the_connection_stays(board: SshTransport) -> None:
    with pytest.raises(CommandTimeoutError, match="did not end within"):
        board.run(["sleep", "600"], 0.3)
    assert board.alive()
    assert board.run(["true"], 20).returncode == 0


def test_a_program_that_is_not_there_gives_its_exit_code(board: SshTransport) -> None:
    assert board.run(["/no/such"], 20).returncode == 127


def test_a_stream_talks_both_ways_and_keeps_stderr_apart(board: SshTransport, tmp_path: Path) -> None:
    log = tmp_path / "log"
    stream = board.open_stream(["sh", "-c", "echo to the log >&2; cat; exit 5"], log)
    stream.writer.write(b"hello\n")
    stream.writer.flush()
    assert stream.reader.read(6) == b"hello\n"
    assert stream.exit_status() is None
    stream.close()
    assert stream.exit_status() == 5
    assert log.read_text() == "to the log\n"


def test_much_on_stderr_does_not_stop_stdout(board: SshTransport, tmp_path: Path) -> None:
    log = tmp_path / "log"
    stream = board.open_stream(["sh", "-c", "head -c 8000000 /dev/zero >&2; echo done"], log)
    assert stream.reader.readline() == b"done\n"
    stream.close()
    assert log.stat().st_size == 8_000_000


def test_abort_ends_a_command_that_does_not_listen(board: SshTransport, tmp_path: Path) -> None:
    fifo = tmp_path / "held by the command"
    os.mkfifo(fifo)
    script = "trap '' PIPE HUP TERM; exec 3>\"$1\"; while :; do sleep 1 3>&-; done"
    stream = board.open_stream(["sh", "-c", script, "sh", str(fifo)], tmp_path / "log")
    threading.Thread(target=stream.reader.read, args=[1], daemon=True).start()  # learns the process id
    with fifo.open() as held:
        stream.close(grace_s=0.1)
        assert held.read() == ""
    assert board.alive()


def test_what_an_rc_file_prints_goes_to_the_log(own_server: Sshd, tmp_path: Path) -> None:
    (own_server.home / ".bashrc").write_text(CHATTER)
    log = tmp_path / "log"
    with SshTransport(target_for(own_server)) as board:
        assert board.run(["echo", "clean"], 20).stdout == b"clean\n"
        stream = board.open_stream(["cat"], log)
        stream.writer.write(b"x\n")
        stream.writer.flush()
        assert stream.reader.readline() == b"x\n"
        stream.close()
        # With chatter before it the SFTP server cannot be spoken to; the file arrives all the same.
        path = f"{board.work_dir()}/file"
        assert board.put_file(b"abc", path)
        assert Path(path).read_bytes() == b"abc"
    if "Welcome" not in log.read_text():
        pytest.skip("this login shell reads no rc file for remote commands")


def test_the_work_folder_is_ours_alone(board: SshTransport, server: Sshd) -> None:
    folder = Path(board.work_dir())
    assert folder == server.home / ".cache" / "edgeplace"
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("sftp", [True, False], ids=["sftp", "no sftp"])
def test_put_file(tmp_path: Path, sftp: bool) -> None:
    server = Sshd(tmp_path / "sshd", sftp=sftp)
    with contextlib.closing(_Closing(server)), SshTransport(target_for(server)) as transport:
        board = transport
        assert isinstance(board, SshTransport)
        path = Path(board.work_dir()) / "it's a file"
        data = os.urandom(3 << 20)
        assert board.put_file([data[:1000], memoryview(data)[1000:]], str(path), 0o640)
        assert path.read_bytes() == data
        assert path.stat().st_mode & 0o777 == 0o640
        assert not board.put_file(data, str(path), 0o600)
        assert path.stat().st_mode & 0o777 == 0o600
        path.write_bytes(data[:-1])
        assert board.put_file(data, str(path), 0o640)
        assert path.read_bytes() == data
        assert board.put_file(b"", str(path))
        assert path.read_bytes() == b""
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
        assert board._sftp_works is sftp
        with pytest.raises(LinkError, match="cannot write") as caught:
            board.put_file(data, "/no/such/folder/file")
        assert caught.value.hint


def test_an_unknown_host_key_is_refused_with_its_fingerprint(server: Sshd, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    with pytest.raises(HostKeyError, match="unknown host key ssh-ed25519 SHA256:") as caught:
        SshTransport(target_for(server, known_hosts=empty)).connect()
    error = caught.value
    assert not error.changed
    assert error.known_hosts_line == server.known_hosts_line(server.host_key)
    assert error.known_hosts_line in error.hint
    assert error.fingerprint == paramiko.Ed25519Key(filename=str(server.host_key)).fingerprint
    assert error.where.endswith(f"@127.0.0.1:{server.port}")


def test_a_changed_host_key_is_refused(server: Sshd, tmp_path: Path) -> None:
    stale = tmp_path / "known_hosts"
    stale.write_text(server.known_hosts_line(make_key(tmp_path / "other")) + "\n")
    with pytest.raises(HostKeyError, match="the host key changed") as caught:
        SshTransport(target_for(server, known_hosts=stale)).connect()
    assert caught.value.changed
    assert "ssh-keygen -R '[127.0.0.1]:" in caught.value.hint


def test_known_hosts_from_the_environment(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    monkeypatch.setenv("EDGEPLACE_KNOWN_HOSTS", f"{empty}{os.pathsep}{server.known_hosts}")
    with SshTransport(target_for(server, known_hosts=None)) as board:
        assert board.alive()


@pytest.mark.parametrize("content", [None, "[127.0.0.1]:22 ssh-ed25519 AAAA!\n"], ids=["missing", "damaged"])
def test_a_bad_known_hosts_file_is_named(server: Sshd, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "known_hosts"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LinkError, match="known") as caught:
        SshTransport(target_for(server, known_hosts=path)).connect()
    assert str(path) in f"{caught.value}" or isinstance(caught.value, HostKeyError)


def test_a_wrong_user_key_is_explained(server: Sshd, tmp_path: Path) -> None:
    key = make_key(tmp_path / "key")
    with pytest.raises(LinkError, match=f"does not let user '{getpass.getuser()}' in") as caught:
        SshTransport(target_for(server, identity_file=key)).connect()
    assert "ssh-copy-id" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read the private key"), ("not a key", "no private key that can be used")],
    ids=["missing", "damaged"],
)
def test_a_bad_user_key_is_named(server: Sshd, tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LinkError, match=message) as caught:
        SshTransport(target_for(server, identity_file=path)).connect()
    assert caught.value.where == str(path)


@pytest.fixture
def empty_ssh_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An ssh-agent of our own, without keys."""
    if shutil.which("ssh-agent") is None:
        pytest.skip("no ssh-agent on this machine (Debian: sudo apt install openssh-client)")
    path = tmp_path / "agent.socket"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # printed once it listens
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    yield
    process.kill()
    process.communicate()


@pytest.mark.usefixtures("empty_ssh_agent")
def test_a_locked_user_key_is_explained_and_used_through_the_agent(server: Sshd, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.write_bytes(server.user_key.read_bytes())
    locked.chmod(0o600)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(locked)], check=True, capture_output=True
    )
    board = SshTransport(target_for(server, identity_file=locked))
    with pytest.raises(LinkError, match="locked by a passphrase") as caught:
        board.connect()
    assert caught.value.hint == f"ssh-add {locked}"
    subprocess.run(["ssh-add", "-q", str(server.user_key)], check=True, capture_output=True)
    board.connect()
    assert board.alive()
    board.close()


def test_a_port_where_nobody_listens_is_explained(server: Sshd) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: nobody else gets it meanwhile
        with pytest.raises(LinkError, match="connection refused") as caught:
            SshTransport(target_for(server, port=taken.getsockname()[1])).connect()
    assert "sshd" in caught.value.hint


def test_a_listener_that_says_nothing_is_explained(server: Sshd) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        target = target_for(server, port=silent.getsockname()[1], connect_timeout_s=0.3)
        with pytest.raises(LinkError, match="did not speak SSH"):
            SshTransport(target).connect()


def test_a_name_without_an_address_is_explained(server: Sshd) -> None:
    with pytest.raises(LinkError, match=r"no address for host 'board\.invalid'"):
        SshTransport(target_for(server, host="board.invalid")).connect()


def test_a_connection_killed_while_a_command_runs(own_server: Sshd, tmp_path: Path) -> None:
    board = SshTransport(target_for(own_server))
    stream = board.open_stream(["sh", "-c", "echo on; cat"], tmp_path / "log")
    assert stream.reader.readline() == b"on\n"
    assert own_server.signal_connections(signal.SIGKILL)
    assert stream.reader.read(1) == b""
    assert stream.exit_status() is None
    assert not board.alive()
    stream.close()
    assert board.run(["echo", "again"], 20).stdout == b"again\n"  # connects anew
    board.close()


def test_run_on_a_connection_that_breaks_is_a_link_error(own_server: Sshd, tmp_path: Path) -> None:
    fifo = tmp_path / "opened by the command"
    os.mkfifo(fifo)

    def kill_once_it_runs() -> None:
        with fifo.open():  # waits until the command has opened it
            own_server.signal_connections(signal.SIGKILL)

    killer = threading.Thread(target=kill_once_it_runs, daemon=True)
    killer.start()
    board = SshTransport(target_for(own_server))
    with pytest.raises(LinkError, match="the connection broke while 'sh' ran"):
        board.run(["sh", "-c", 'exec 3>"$1"; sleep 600', "sh", str(fifo)], 60)
    killer.join()
    board.close()


def test_a_frozen_board_is_given_up(
    own_server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = SshTransport(target_for(own_server))
    stream = board.open_stream(["sh", "-c", "echo on; cat"], tmp_path / "log")
    assert stream.reader.readline() == b"on\n"
    monkeypatch.setattr(ssh_module, "CHANNEL_TIMEOUT_S", 0.5)
    monkeypatch.setattr(ssh_module, "CLOSE_TIMEOUT_S", 0.3)
    assert own_server.signal_connections(signal.SIGSTOP)
    with pytest.raises(LinkError):
        board.run(["true"], 0.5)
    woken = threading.Event()

    def write() -> None:
        with contextlib.suppress(OSError):
            stream.writer.write(bytes(64 << 20))
        woken.set()

    threading.Thread(target=write, daemon=True).start()
    assert not woken.wait(0.2)
    stream.abort()
    assert woken.wait(20)
    stream.close(0.1)
    board.close()
