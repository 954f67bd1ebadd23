"""The real agent as a child process, and a small host for it."""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from device_agents import protocol

AGENT = (sys.executable, "-m", "device_agents")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class AgentProcess:
    """One agent over two pipes. ``events`` holds what came before the last answer."""

    def __init__(self, root: Path, *arguments: str, command: Sequence[str] = AGENT) -> None:
        self.log = next(folder for folder in root.parents if folder.is_dir()) / "agent.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--root", str(root), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.events: list[dict[str, Any]] = []
        self._last_id = 0
        protocol.skip_to_marker(self.stdout)

    def send(self, verb: Any, payload: bytes = b"", **fields: Any) -> None:
        self._last_id += 1
        protocol.write_frame(self.stdin, {"verb": verb, "id": self._last_id, **fields}, payload)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next answer."""
        self.events = []
        while True:
            header, payload = protocol.read_frame(self.stdout)
            if "event" not in header:
                return header, payload
            self.events.append(header)

    def ask(self, verb: Any, payload: bytes = b"", **fields: Any) -> dict[str, Any]:
        self.send(verb, payload, **fields)
        header, _ = self.receive()
        assert header["id"] == self._last_id
        return header

    def put(self, data: bytes) -> str:
        name = sha256(data)
        assert self.ask("put", data, sha256=name)["ok"]
        return name

    def wait(self) -> int:
        return self.process.wait(timeout=60)

    def close(self) -> int:
        """Hang up and wait for the agent's end."""
        self.stdin.close()
        status = self.wait()
        self.stdout.close()
        return status


@contextmanager
def running_agent(root: Path, *arguments: str, command: Sequence[str] = AGENT) -> Iterator[AgentProcess]:
    """An agent that is gone when the block ends, however it ends."""
    agent = AgentProcess(root, *arguments, command=command)
    try:
        yield agent
    finally:
        agent.process.kill()
        agent.process.wait()
        agent.stdin.close()
        agent.stdout.close()


def children_of(pid: int) -> list[int]:
    """The processes whose parent is ``pid``."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            children.append(int(stat.parent.name))
    return children


@contextmanager
def watched(pid: int) -> Iterator[int]:
    """A descriptor for :func:`wait_until_gone`, taken while the process is there."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def wait_until_gone(descriptor: int) -> None:
    """Return when the watched process has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(60_000), "the process is still there"
