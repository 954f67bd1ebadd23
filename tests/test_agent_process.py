"""The agent as it runs on a board: a process that survives every request and every worker, and ends with its host."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_process import (
    AGENT,
    AgentProcess,
    children_of,
    running_agent,
    sha256,
    wait_until_gone,
    watched,
)

from device_agents import protocol
from device_agents.daemon import Daemon
from device_agents.health import HealthSources
from device_agents.worker_handle import WorkerHandle

CHILD = [sys.executable, str(Path(__file__).with_name("agent_worker_child.py"))]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    with running_agent(tmp_path / "root") as process:
        yield process


def some_worker(agent: AgentProcess) -> int:
    """Make the agent start its worker; gives its pid."""
    model = agent.put(b"no model")
    agent.ask("shapes", model=model, input_shapes={}, kernels="ref")
    (pid,) = children_of(agent.process.pid)
    return pid


def test_hello_says_who_it_is_and_where(agent: AgentProcess, tmp_path: Path) -> None:
    hello = agent.ask("hello")
    assert hello["version"] == protocol.PROTOCOL_VERSION
    assert hello["pid"] == agent.process.pid
    assert hello["blobs_dir"] == str(tmp_path / "root" / "blobs")
    assert hello["runtimes"]["numpy"]
    assert hello["runtimes_reason"] is None
    assert hello["fingerprint"]["machine"] == os.uname().machine
    assert hello["fingerprint"]["kernel"] == os.uname().release


def test_the_folder_is_for_its_owner_only(agent: AgentProcess, tmp_path: Path) -> None:
    agent.put(b"data")
    for path in [tmp_path / "root", *(tmp_path / "root").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("verb", ["exec", None, 7, ["hello"], "HELLO", ""])
def test_an_unknown_verb_is_an_error_with_the_list(agent: AgentProcess, verb: Any) -> None:
    error = agent.ask(verb)["error"]
    assert error["kind"] == "unknown_verb"
    assert "hello, have, put" in error["message"]
    assert agent.ask("hello")["ok"]


@pytest.mark.parametrize(
    "request_fields",
    [
        {"verb": "have"},
        {"verb": "have", "hashes": ["../../etc/passwd"]},
        {"verb": "put", "sha256": "../" * 20 + "etc"},
        {"verb": "put", "sha256": "A" * 64},
        {"verb": "put", "sha256": "a" * 64 + "\n"},
        {"verb": "segment", "sha256": "a" * 64, "size_bytes": -1, "constants": []},
        {"verb": "segment", "sha256": "a" * 64, "size_bytes": 3, "constants": [["b" * 64, 0]]},
        {"verb": "try", "platform": {"name": "cpu"}, "model": "a" * 64},
        {"verb": "try", "platform": {"name": "cpu", "loader": "interpreter"}, "model": "/etc/passwd"},
        {"verb": "run", "plan": {}, "inputs": []},
        {"verb": "measure", "plan": None, "inputs": [[]]},
        {"verb": "interleave", "plans": {}, "inputs": []},
        {"verb": "shapes", "model": "a" * 64, "deadline_s": "soon"},
        {"verb": "shapes", "model": "a" * 64, "deadline_s": float("nan")},
        {"verb": "shapes", "model": "a" * 64, "deadline_s": 0},
        {"verb": "drop", "what": "everything"},
    ],
)
def test_a_request_that_is_wrong_is_an_error_and_the_next_one_works(
    agent: AgentProcess, tmp_path: Path, request_fields: dict[str, Any]
) -> None:
    assert agent.ask(payload=b"ignored", **request_fields)["error"]["kind"] == "bad_request"
    assert agent.ask("hello")["ok"]
    assert not [path for path in (tmp_path / "root").rglob("*") if path.is_file() and path.name != "lock"]


def test_blobs_missing_wrong_and_there(agent: AgentProcess) -> None:
    data = b"\x01\x02" * 40
    assert agent.ask("have", hashes=[sha256(data), sha256(b"x")])["missing"] == [sha256(data), sha256(b"x")]
    assert agent.ask("put", data[:-1], sha256=sha256(data))["error"]["kind"] == "hash_mismatch"
    agent.put(data)
    assert agent.ask("have", hashes=[sha256(data), sha256(b"x")])["missing"] == [sha256(b"x")]
    error = agent.ask("shapes", model=sha256(b"x"))["error"]
    assert (error["kind"], error["missing"]) == ("missing_blob", [sha256(b"x")])


def test_a_segment_is_spliced_from_blobs(agent: AgentProcess, tmp_path: Path) -> None:
    constant = agent.put(b"CONSTANT")
    finished = b"headCONSTANTmidCONSTANT"
    recipe = {"size_bytes": len(finished), "constants": [[constant, 4, 8], [constant, 15, 8]]}
    assert agent.ask("segment", b"headmid", sha256=sha256(finished), **recipe)["ok"]
    blob = tmp_path / "root" / "blobs" / sha256(finished)[:2] / sha256(finished)
    assert blob.read_bytes() == finished
    wrong = agent.ask("segment", b"HEADmid", sha256=sha256(b"other"), **recipe)
    assert wrong["error"]["kind"] == "hash_mismatch"
    assert (
        agent.ask("segment", b"headmi", sha256=sha256(b"other"), **recipe)["error"]["kind"] == "bad_request"
    )
    recipe["constants"] = [[sha256(b"not here"), 4, 8]]
    recipe["size_bytes"] = 15
    error = agent.ask("segment", b"headmid", sha256=sha256(b"other"), **recipe)["error"]
    assert (error["kind"], error["missing"]) == ("missing_blob", [sha256(b"not here")])


def test_a_blob_over_the_cap_is_refused(tmp_path: Path) -> None:
    with running_agent(tmp_path / "root", "--blob-cap-bytes", "100") as agent:
        assert agent.ask("put", bytes(101), sha256=sha256(bytes(101)))["error"]["kind"] == "too_large"
        agent.put(bytes(100))


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: board\r\n\r\n",
        struct.pack("<IQ", protocol.MAX_HEADER_BYTES + 1, 0),
        struct.pack("<IQ", 2, protocol.MAX_PAYLOAD_BYTES + 1) + b"{}",
        struct.pack("<IQ", 3, 0) + b"{x}",
        struct.pack("<IQ", 2, 0) + b"[]",
        struct.pack("<IQ", 200_000, 0) + b"[" * 200_000,
    ],
    ids=["http", "header size", "payload size", "not json", "not an object", "deep"],
)
def test_what_is_no_frame_ends_the_agent_with_a_reason(agent: AgentProcess, garbage: bytes) -> None:
    agent.stdin.write(garbage)
    agent.stdin.flush()
    header, _ = agent.receive()
    assert (header["id"], header["error"]["kind"]) == (None, "protocol")
    assert agent.wait() == 2


def test_bye_ends_it(agent: AgentProcess) -> None:
    assert agent.ask("bye")["ok"]
    assert agent.wait() == 0


@pytest.mark.parametrize("cut", [0, 5, 12, 20, 60])
def test_a_host_that_closes_the_stream_anywhere_ends_it(agent: AgentProcess, cut: int) -> None:
    header = {"verb": "put", "id": 1, "sha256": "a" * 64}
    frame = protocol.encode_prefix(header, 10_000) + bytes(10_000)
    agent.stdin.write(frame[:cut] if cut < 60 else frame[:-1])
    assert agent.close() == 0


def test_its_worker_ends_with_the_host(agent: AgentProcess) -> None:
    with watched(some_worker(agent)) as worker:
        assert agent.close() == 0
        wait_until_gone(worker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_its_worker_ends_when_a_signal_ends_the_agent(agent: AgentProcess, number: int) -> None:
    with watched(some_worker(agent)) as worker:
        agent.process.send_signal(number)
        assert agent.wait() == 128 + number
        wait_until_gone(worker)


def test_its_worker_ends_when_the_agent_is_killed_outright(agent: AgentProcess) -> None:
    pid = some_worker(agent)
    with watched(pid) as worker:
        os.kill(pid, signal.SIGSTOP)  # it cannot notice the closed pipe: the kernel has to do it
        agent.process.kill()
        wait_until_gone(worker)


def test_dropping_sessions_ends_the_worker_and_blobs_go_on_request(agent: AgentProcess) -> None:
    with watched(some_worker(agent)) as worker:
        assert agent.ask("drop", what="sessions")["ok"]
        wait_until_gone(worker)
    assert agent.ask("drop", what="blobs")["freed_bytes"] == len(b"no model")
    assert agent.ask("have", hashes=[sha256(b"no model")])["missing"]


def test_a_second_agent_in_the_same_folder_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    with running_agent(tmp_path / "root") as first, running_agent(tmp_path / "root") as second:
        first.put(b"mine")
        error = second.ask("have", hashes=[])["error"]
        assert error["kind"] == "busy"
        assert str(first.process.pid) in error["message"]
        assert second.ask("hello")["ok"]
        assert second.ask("health")["ok"]
        first.close()
        assert second.ask("have", hashes=[sha256(b"mine")])["missing"] == []


def test_a_host_that_comes_back_ends_the_agent_it_left_behind(tmp_path: Path) -> None:
    root, owner = tmp_path / "root", ("--owner", "5f3a")
    with running_agent(root, *owner) as left_behind, running_agent(root, *owner) as new:
        data = left_behind.put(b"kept")
        with watched(some_worker(left_behind)) as worker:
            assert new.ask("have", hashes=[data])["missing"] == []
            assert left_behind.wait() == 128 + signal.SIGTERM
            wait_until_gone(worker)
        with running_agent(root, "--owner", "other") as stranger:
            assert stranger.ask("have", hashes=[])["error"]["kind"] == "busy"
        assert new.ask("have", hashes=[data])["ok"]


def test_an_agent_whose_host_stopped_reading_still_ends_on_a_signal(agent: AgentProcess) -> None:
    """What happens behind a dead link: the answer does not go out, and nobody closes anything."""
    agent.send("have", hashes=[sha256(bytes([number % 256, number // 256])) for number in range(4000)])
    select.select([agent.stdout], [], [])  # the answer, larger than a pipe, is on its way
    agent.process.send_signal(signal.SIGTERM)
    assert agent.wait() == 128 + signal.SIGTERM


def test_the_stream_may_be_one_socket_for_both_ways(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([*AGENT, "--root", str(tmp_path / "root")], stdin=theirs, stdout=theirs)
    stream = ours.makefile("rwb")
    try:
        protocol.skip_to_marker(stream)  # type: ignore[arg-type]
        protocol.write_frame(stream, {"verb": "health", "id": 1})  # type: ignore[arg-type]
        assert protocol.read_frame(stream)[0]["ok"]  # type: ignore[arg-type]
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        stream.close()
        ours.close()


def test_a_closed_standard_error_does_not_matter(tmp_path: Path) -> None:
    shell = ["sh", "-c", 'exec "$0" "$@" 2>&-', *AGENT]
    with running_agent(tmp_path / "root", command=shell) as agent:
        assert agent.ask("hello")["ok"]
        some_worker(agent)
        assert agent.close() == 0


def test_a_folder_that_cannot_be_used_is_said_on_the_stream_and_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with running_agent(tmp_path / "file" / "root") as agent:
        header, _ = agent.receive()
        assert (header["id"], header["error"]["kind"]) == (None, "root_unusable")
        assert "file" in header["error"]["message"]
        assert agent.wait() == 1
        assert "cannot be used" in agent.log.read_text()


def test_the_log_file_takes_what_would_go_to_stderr(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "agent.log"
    with running_agent(tmp_path / "root", "--log", str(log)) as agent:
        agent.ask("hello")
        agent.close()
        assert "the host closed the stream" in log.read_text()
        assert log.stat().st_mode & 0o077 == 0
        assert agent.log.read_text() == ""


# From here on the parent's code runs in a thread of this process, with a worker that misbehaves on request.


class HostedDaemon:
    """A :class:`Daemon` over two pipes and the host's end of them."""

    def __init__(self, root: Path, tick_s: float) -> None:
        root.mkdir()
        host_read, agent_write = os.pipe()
        agent_read, host_write = os.pipe()
        self.workers: list[WorkerHandle] = []
        self.worker_started = threading.Event()
        self.reader, self.writer = os.fdopen(host_read, "rb"), os.fdopen(host_write, "wb")
        self._incoming = os.fdopen(agent_read, "rb", buffering=0)
        self._outgoing = os.fdopen(agent_write, "wb")
        self.exit_code: int | None = None
        self.daemon = Daemon(
            self._incoming,
            self._outgoing,
            root,
            1 << 20,
            self._start_worker,
            HealthSources(),
            tick_s=tick_s,
        )
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        protocol.skip_to_marker(self.reader)
        self.model = sha256(b"model")
        self.send(b"model", verb="put", sha256=self.model)
        assert self.receive()["ok"]

    def _start_worker(self, variables: dict[str, str]) -> WorkerHandle:
        self.workers.append(WorkerHandle(CHILD, {**os.environ, **variables}, tick_s=self.daemon.tick_s))
        self.worker_started.set()
        return self.workers[-1]

    def _serve(self) -> None:
        self.exit_code = self.daemon.serve()
        self._outgoing.close()
        self._incoming.close()

    def send(self, payload: bytes = b"", **request: Any) -> None:
        protocol.write_frame(self.writer, {"id": 9, **request}, payload)

    def receive(self, on_event: Callable[[dict[str, Any]], None] = lambda event: None) -> dict[str, Any]:
        """The next answer."""
        while True:
            header, _ = protocol.read_frame(self.reader)
            assert header["id"] == 9
            if "event" not in header:
                return header
            on_event(header)

    def do(
        self, deed: str, on_event: Callable[[dict[str, Any]], None] = lambda event: None, **fields: Any
    ) -> dict[str, Any]:
        self.send(verb="shapes", model=self.model, do=deed, **fields)
        return self.receive(on_event)

    def close(self) -> None:
        self.writer.close()
        self.thread.join()
        self.reader.close()


@contextmanager
def hosted(root: Path, tick_s: float = 0.02) -> Iterator[HostedDaemon]:
    host = HostedDaemon(root, tick_s)
    try:
        yield host
    finally:
        host.close()


def test_every_death_is_a_failure_and_the_next_job_has_a_fresh_worker(tmp_path: Path) -> None:
    with hosted(tmp_path / "root") as host:
        for deed, kind in [
            ("crash", "crashed"),
            ("exit0", "exited"),
            ("kill", "out_of_memory"),
            ("garbage", "crashed"),
        ]:
            failure = host.do(deed, stage="prepare")["failure"]
            assert (failure["kind"], failure["stage"], failure["segment"]) == (kind, "prepare", 3)
            assert failure["platform"] == "npu"
            answer = host.do("answer")
            assert answer["answer"] == "fine"
            assert answer["jobs"] == 1
        assert len(host.workers) == 5
    assert host.exit_code == 0


def test_a_hang_is_a_timeout_while_heartbeats_go_on(tmp_path: Path) -> None:
    beats: list[dict[str, Any]] = []
    with hosted(tmp_path / "root") as host:
        failure = host.do("hang", beats.append, stage="timing", stage_deadline_s=5, deadline_s=2)["failure"]
        assert (failure["kind"], failure["stage"]) == ("timeout", "timing")
        assert host.do("answer")["jobs"] == 1
    in_stage = [beat for beat in beats if beat["event"] == "heartbeat" and beat["stage"] == "timing"]
    assert in_stage
    assert {beat["platform"] for beat in in_stage} == {"npu"}


def test_heartbeats_go_on_while_the_worker_is_stopped(tmp_path: Path) -> None:
    with hosted(tmp_path / "root") as host:
        stopped: list[int] = []

        def on_event(event: dict[str, Any]) -> None:
            pid = host.workers[0].pid
            if event["event"] == "progress":
                os.kill(pid, signal.SIGSTOP)
            elif event["stage"]:
                stopped.append(1)
            if len(stopped) == 3:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGUSR1)

        assert host.do("wait", on_event, stage="timing")["ok"]
        assert len(stopped) >= 3


def test_a_worker_that_dies_between_jobs_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    with hosted(tmp_path / "root") as host:
        first = host.do("answer")
        with watched(first["pid"]) as process:
            os.kill(first["pid"], signal.SIGKILL)
            wait_until_gone(process)
        second = host.do("answer")
        assert second["ok"]
        assert second["pid"] != first["pid"]


def test_a_worker_that_dies_of_an_earlier_job_unseen_is_replaced(tmp_path: Path) -> None:
    """It dies after the parent looked and before it takes the job: the job is given to a fresh worker."""
    with hosted(tmp_path / "root") as host:
        first = host.do("answer")

        def look_then_die() -> bool:
            del host.workers[0].is_alive  # type: ignore[method-assign]
            with watched(first["pid"]) as process:
                os.kill(first["pid"], signal.SIGKILL)
                wait_until_gone(process)
            return True

        host.workers[0].is_alive = look_then_die  # type: ignore[method-assign]
        second = host.do("answer")
        assert (second["ok"], second["jobs"]) == (True, 1)


def test_a_worker_has_its_platforms_variables_from_its_start(tmp_path: Path) -> None:
    with hosted(tmp_path / "root") as host:

        def ask(**env: str) -> tuple[str, str | None]:
            platform = {"name": "gpu", "loader": "compiled_model", "env": env}
            host.send(verb="try", model=host.model, do="environment", platform=platform)
            header = host.receive()
            return header["answer"], header["jobs"]

        assert ask(EP_A="1") == ("1-", 1)
        assert ask(EP_A="1") == ("1-", 2)
        assert ask(EP_B="2") == ("12", 1), "the driver must see it, so the worker is a new one"
        assert ask(EP_A="1") == ("12", 2), "they do not contradict: the worker and its sessions stay"
        assert ask() == ("12", 3)
        assert ask(EP_A="3") == ("32", 1)
        assert len(host.workers) == 3


def test_platforms_of_one_plan_that_contradict_each_other_are_refused(agent: AgentProcess) -> None:
    model = agent.put(b"model")
    platforms = {
        name: {"name": name, "loader": "compiled_model", "env": {"VK_DRIVER_FILES": name}}
        for name in ("a", "b")
    }
    segments = [{"platform": name, "model": model, "inputs": [], "outputs": 1} for name in platforms]
    plan = {"segments": segments, "outputs": [], "platforms": platforms}
    error = agent.ask("run", plan=plan, inputs=[[]])["error"]
    assert error["kind"] == "bad_request"
    assert "VK_DRIVER_FILES" in error["message"]


@pytest.mark.parametrize("env", [["A"], {"A": 1}, {"A=B": "x"}, {"": "x"}, {"A": "x\0y"}])
def test_an_environment_that_is_none_is_refused(agent: AgentProcess, env: Any) -> None:
    platform = {"name": "gpu", "loader": "compiled_model", "env": env}
    assert agent.ask("try", model=agent.put(b"model"), platform=platform)["error"]["kind"] == "bad_request"


def test_the_host_leaving_during_a_hang_ends_the_worker(tmp_path: Path) -> None:
    host = HostedDaemon(tmp_path / "root", 0.02)
    watching: list[int] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "progress":
            watching.append(os.pidfd_open(host.workers[0].pid))
            host.writer.close()

    with pytest.raises(protocol.StreamClosed):
        host.do("hang", on_event, stage="timing")
    host.close()
    wait_until_gone(watching[0])
    os.close(watching[0])
    assert host.exit_code == 0


def test_a_host_that_does_not_read_cannot_stop_the_deadline(tmp_path: Path) -> None:
    """Events are dropped when the pipe is full; the job still ends in time and its answer comes last."""
    with hosted(tmp_path / "root", tick_s=0.0005) as host:
        host.send(verb="shapes", model=host.model, do="hang", stage="timing", deadline_s=1.5)
        host.worker_started.wait()
        with watched(host.workers[0].pid) as process:
            wait_until_gone(process)
        assert host.receive()["failure"]["kind"] == "timeout"
