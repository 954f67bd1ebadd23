"""A private OpenSSH server on loopback for the tests: own keys, own configuration, own empty home folder.

Nothing outside its folder is touched, except for ``/run/sshd``, which sshd demands when root starts it.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HOW_TO_GET_IT = "no OpenSSH server on this machine (Debian: sudo apt install openssh-server openssh-client)"
_SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
)


def sshd_program() -> str:
    """The sshd to run, by absolute path as it wants; skips the test (or fails it in CI) when there is none."""
    found = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None or shutil.which("ssh-keygen") is None:
        if os.environ.get("CI"):
            pytest.fail(HOW_TO_GET_IT)
        pytest.skip(HOW_TO_GET_IT)
    return found


def make_key(path: Path) -> Path:
    """A new ed25519 key pair at ``path`` and ``path.pub``."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True, timeout=60
    )
    return path


@dataclass
class Sshd:
    """A server that runs until :meth:`stop`. ``sftp=False`` leaves the SFTP subsystem out."""

    folder: Path
    sftp: bool = True
    port: int = field(init=False)
    _process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        program = sshd_program()
        self.home = self.folder / "home"
        self.home.mkdir(parents=True)
        self.user_key = make_key(self.folder / "user_key")
        self.host_key = make_key(self.folder / "host_key")
        (self.folder / "authorized_keys").write_bytes((self.folder / "user_key.pub").read_bytes())
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        config = self.folder / "sshd_config"
        config.write_text("\n".join(self._config()) + "\n")
        self.log = self.folder / "sshd.log"
        self._process = subprocess.Popen(
            [program, "-D", "-f", str(config), "-E", str(self.log)], stdin=subprocess.DEVNULL
        )
        self._wait_until_it_listens()
        self.known_hosts = self.folder / "known_hosts"
        self.known_hosts.write_text(self.known_hosts_line(self.host_key) + "\n")

    def _config(self) -> list[str]:
        lines = [
            "ListenAddress 127.0.0.1",
            f"Port {self.port}",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.folder}/authorized_keys",
            "PidFile none",
            "AuthenticationMethods publickey",
            "PermitRootLogin prohibit-password",
            "UsePAM no",
            "UseDNS no",
            "StrictModes no",  # the temporary folder lies below one that all may write
            "PrintMotd no",
            "MaxStartups 100",
            "MaxSessions 64",
            # The shell reads rc files of this empty folder, not those of whoever runs the tests.
            f"SetEnv HOME={self.home} XDG_CACHE_HOME={self.home}/.cache",
        ]
        server = next((path for path in _SFTP_SERVERS if os.access(path, os.X_OK)), "internal-sftp")
        return [*lines, f"Subsystem sftp {server}"] if self.sftp else lines

    def _wait_until_it_listens(self) -> None:
        give_up = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                pytest.fail(f"sshd did not start:\n{self.log.read_text() if self.log.exists() else ''}")
            time.sleep(0.01)

    @property
    def address(self) -> str:
        """What a user would type."""
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}"

    def known_hosts_line(self, host_key: Path) -> str:
        """A known_hosts line that trusts ``host_key`` for this server."""
        kind, data = host_key.with_suffix(".pub").read_text().split()[:2]
        return f"[127.0.0.1]:{self.port} {kind} {data}"

    def descendants(self) -> list[int]:
        """Process ids of everything the server started: one tree per connection."""
        return descendants_of(self._process.pid)

    def signal_connections(self, number: int) -> int:
        """Send a signal to the sshd processes of all connections (not to what they run); gives their number."""
        processes = [pid for pid in self.descendants() if _command_name(pid).startswith("sshd")]
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(processes)

    def stop(self) -> None:
        """End the listener and every connection's processes, and what they started."""
        tree = self.descendants()  # before the listener ends: its orphans are not to be found afterwards
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants_of(pid: int) -> list[int]:
    """Process ids of the children of ``pid`` and theirs, from ``/proc``."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in brackets may hold anything; the parent is the second field behind it.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _command_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


if sys.platform != "linux":
    pytest.skip("the tests look into /proc", allow_module_level=True)
