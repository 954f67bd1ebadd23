"""The host's side of the agent: with the real one, and with made-up ones that misbehave in every way."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import io
import os
import signal
import sys
import tempfile
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import is_gone
from sshd import Sshd

import device_agents
from edgeplace.agent_client import (
    AgentClient,
    AgentFailure,
    AgentLost,
    AgentRefused,
    LinkLost,
    Progress,
    wire_plan,
)
from edgeplace.errors import AgentError, LinkError
from edgeplace.placement.plan import Plan, Segment, Source
from edgeplace.tflite.segment_file import ConstantRef, SegmentFile
from edgeplace.transport import LocalTransport
from edgeplace.transport import ssh as ssh_module
from edgeplace.transport.ssh import SshTransport
from edgeplace.transport.ssh_target import SshTarget

CPU = {"name": "cpu", "kind": "cpu", "loader": "interpreter", "options": {"threads": 1}}
SHORT = {"warmup_min_runs": 1, "warmup_min_s": 0.0, "min_runs": 3, "max_runs": 5, "budget_s": 1.0}

FAKE_PRELUDE = """
import os, signal, sys, threading
from device_agents import protocol as p

class Bye(Exception):
    pass

def send(header, payload=b""):
    p.write_frame(sys.stdout.buffer, header, payload)

def hello(number, **changes):
    facts = {"version": p.PROTOCOL_VERSION, "agent_sha256": "0" * 64, "python": "3.9.0", "machine": "toy",
             "system": "Linux", "boot_id": "boot", "cpu_count": 1, "pid": os.getpid(), "runtimes": {},
             "runtimes_reason": None, "blobs_dir": "/nowhere", "fingerprint": {}}
    send({**facts, **changes, "ok": True, "id": number})

def serve(handlers):
    sys.stdout.buffer.write(p.MARKER)
    sys.stdout.buffer.flush()
    while True:
        try:
            request, payload = p.read_frame(sys.stdin.buffer)
        except p.StreamClosed:
            return
        number = request["id"]
        if request["verb"] == "bye":
            send({"ok": True, "id": number})
            return
        handler = handlers.get(request["verb"])
        if handler is not None:
            handler(number)
        elif request["verb"] == "hello":
            hello(number)
        else:
            send({"ok": True, "id": number})
"""


def fake_bundle(script: str) -> bytes:
    """A zipapp that speaks the real protocol and otherwise does what ``script`` says."""
    protocol = Path(device_agents.__file__).parent / "protocol.py"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("device_agents/__init__.py", "")
        archive.writestr("device_agents/protocol.py", protocol.read_bytes())
        archive.writestr("__main__.py", FAKE_PRELUDE + textwrap.dedent(script))
    return buffer.getvalue()


def answering_health_with(statements: str) -> bytes:
    """An agent whose ``health`` runs the statements; the request's id is ``number``."""
    return fake_bundle(
        "def health(number):\n"
        + textwrap.indent(textwrap.dedent(statements), " ")
        + "\nserve({'health': health})"
    )


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs that are kept for a person to read go where the tests clean up."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def board(tmp_path: Path) -> LocalTransport:
    return LocalTransport(work_dir=tmp_path / "work")


@pytest.fixture
def fake(board: LocalTransport) -> Iterator[Callable[..., AgentClient]]:
    """``fake(bundle, **options)``: a started client of a made-up agent."""
    with contextlib.ExitStack() as stack:
        yield lambda bundle, **options: stack.enter_context(AgentClient(board, bundle=bundle, **options))


@pytest.fixture
def agent(board: LocalTransport) -> Iterator[AgentClient]:
    """The real agent as a child process."""
    with AgentClient(board) as client:
        yield client


def recipe_of(data: bytes, *ranges: tuple[int, int]) -> SegmentFile:
    """A file as a recipe whose constants are the given (offset, size) ranges of it."""
    skeleton = bytearray(data)
    constants: list[ConstantRef] = []
    views: dict[str, memoryview] = {}
    for offset, size in reversed(ranges):
        piece = data[offset : offset + size]
        sha256 = hashlib.sha256(piece).hexdigest()
        views[sha256] = memoryview(piece)
        constants.insert(0, ConstantRef(sha256, offset, size))
        del skeleton[offset : offset + size]
    return SegmentFile(hashlib.sha256(data).hexdigest(), len(data), bytes(skeleton), tuple(constants), views)


def requests_of(client: AgentClient, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The verbs the client sends from now on."""
    conversation = client._conversation
    assert conversation is not None
    verbs: list[str] = []
    original = conversation.request

    def request(header: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        verbs.append(header["verb"])
        return original(header, *arguments, **options)

    monkeypatch.setattr(conversation, "request", request)
    return verbs


# --- the real agent -------------------------------------------------------------------------------------------


def test_it_installs_itself_once_and_says_who_it_is(board: LocalTransport) -> None:
    with AgentClient(board) as client:
        assert client.info.pid > 0
        assert client.info.blobs_dir.startswith(board.work_dir())
        assert "load" in client.health()
        pid = client.info.pid
    assert is_gone(pid)
    (installed,) = Path(board.work_dir()).glob("agent-*.pyz")
    before = installed.stat().st_mtime_ns
    with AgentClient(board) as client:
        assert client.info.agent_sha256 == hashlib.sha256(installed.read_bytes()).hexdigest()
    assert installed.stat().st_mtime_ns == before


def test_blobs_cross_once(agent: AgentClient, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = requests_of(agent, monkeypatch)
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    described = agent.ensure_arrays([array, array, array.T])
    assert [entry["shape"] for entry in described] == [[3, 4], [3, 4], [4, 3]]
    assert described[0]["blob"] == described[1]["blob"] == hashlib.sha256(array.tobytes()).hexdigest()
    assert described[2]["blob"] == hashlib.sha256(array.T.tobytes()).hexdigest()
    assert verbs == ["have", "put", "put"]
    assert agent.ensure_arrays([array]) == described[:1]
    assert verbs == ["have", "put", "put"]


def test_a_segment_shares_its_constants_with_others(
    agent: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, data = os.urandom(5000), os.urandom(100)
    first, second = recipe_of(data + weights + data, (100, 5000)), recipe_of(weights, (0, 5000))
    verbs = requests_of(agent, monkeypatch)
    agent.ensure_segments([first, second])
    assert verbs == ["have", "have", "put", "segment", "segment"]
    blobs = Path(agent.info.blobs_dir)
    files = [path for path in blobs.rglob("*") if path.is_file() and path.stat().st_size == first.size_bytes]
    assert [path.read_bytes() for path in files] == [data + weights + data]
    agent.ensure_segments([first, second])
    assert len(verbs) == 5


def test_what_the_board_forgot_is_sent_again(agent: AgentClient, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = os.urandom(5000)
    agent.ensure_segment(recipe_of(b"a" + weights, (1, 5000)))
    assert agent._conversation is not None
    agent._conversation.request({"verb": "drop", "what": "blobs"})  # behind the client's back
    verbs = requests_of(agent, monkeypatch)
    agent.ensure_segment(recipe_of(b"b" + weights, (1, 5000)))
    assert verbs == ["have", "segment", "have", "put", "segment"]


def test_a_blob_that_was_never_given_is_an_error_and_the_agent_goes_on(agent: AgentClient) -> None:
    with pytest.raises(AgentRefused) as caught:
        agent.try_segment(CPU, "0" * 64)
    assert caught.value.kind == "missing_blob"
    assert agent.health()


def test_a_wrong_request_is_an_error_and_the_agent_goes_on(agent: AgentClient) -> None:
    with pytest.raises(AgentRefused) as caught:
        agent.drop("everything")  # type: ignore[arg-type]
    assert caught.value.kind == "bad_request"
    assert agent.health()


def test_a_second_agent_in_the_same_folder_is_refused_with_a_hint(
    agent: AgentClient, board: LocalTransport
) -> None:
    agent.ensure_blobs({hashlib.sha256(b"x").hexdigest(): b"x"})
    with AgentClient(board) as second:
        assert second.info.pid != agent.info.pid
        with pytest.raises(AgentRefused, match="another agent") as caught:
            second.ensure_blobs({hashlib.sha256(b"y").hexdigest(): b"y"})
    assert (caught.value.kind, bool(caught.value.hint)) == ("busy", True)


def test_a_folder_that_cannot_be_used_is_explained(board: LocalTransport, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(AgentRefused) as caught:
        AgentClient(board, root=str(tmp_path / "file")).start()
    assert caught.value.kind == "root_unusable"


def test_a_model_is_tried_shaped_run_and_measured(
    agent: AgentClient, model_file: Callable[[str], Path]
) -> None:
    data = model_file("conv_chain").read_bytes()
    model = recipe_of(data, (200, 50), (len(data) // 2, 64))
    seen: list[Progress] = []
    agent.on_progress = seen.append

    assert agent.probe(CPU, model).available
    tried = agent.try_segment(CPU, model, timing=SHORT, deadline_s=120)
    assert tried.times_ms
    assert {event.stage for event in seen} >= {"first_run", "timing"}
    assert all(event.platform == "cpu" for event in seen if event.stage == "first_run")

    shapes = agent.shapes(model, kernels="builtin")
    (given,) = [shape for shape in shapes.shapes.values() if len(shape) == 4][:1]
    sample = np.random.default_rng(0).random(given, dtype=np.float32)
    plan = whole_plan(constant_output=True)
    constant = np.array([1, 2, 3], np.int32)
    blobs = agent.ensure_arrays([constant])
    wire = wire_plan(plan, {0: model}, {"cpu": CPU, "unused": CPU}, {7: blobs[0]})
    inputs = [agent.ensure_arrays([sample]), agent.ensure_arrays([sample * 0])]

    plain = agent.run(wire, inputs, deadline_s=120)
    full = agent.run(wire, inputs, intermediates=True)
    assert len(plain.outputs) == len(full.outputs) == len(full.intermediates) == 2
    for one, other, inner in zip(plain.outputs, full.outputs, full.intermediates, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one[0], inner[0])
        np.testing.assert_array_equal(one[1], constant)
    np.testing.assert_array_equal(full.outputs[0][2], sample)
    assert not np.array_equal(plain.outputs[0][0], plain.outputs[1][0])
    assert len(plain.ran_on) == 1

    measured = agent.measure(wire, inputs[:1], SHORT, deadline_s=120)
    assert measured.min_ms <= measured.p50_ms <= measured.p99_ms
    assert len(measured.segment_ms) == len(measured.handover_ms) == len(measured.prepare_ms) == 1
    interleaved = agent.interleave([wire, wire], inputs[:1], rounds=2, runs_per_round=3, budget_s=60)
    assert [[len(runs) for runs in rounds] for rounds in interleaved.times_ms] == [[3, 3], [3, 3]]

    agent.drop("sessions")
    agent.drop("blobs")
    assert agent.run(wire, inputs).outputs  # everything is sent again


def test_foreign_code_that_fails_is_a_failure_and_the_agent_goes_on(agent: AgentClient) -> None:
    no_model = recipe_of(os.urandom(300))
    with pytest.raises(AgentFailure) as caught:
        agent.try_segment(CPU, no_model)
    assert caught.value.platform == "cpu"
    assert caught.value.kind
    assert agent.health()


def whole_plan(constant_output: bool = False) -> Plan:
    segment = Segment(0, "cpu", (0,), (0,), (0,), (1,), (Source("input", 0),))
    more = (Source("constant", 7), Source("input", 0)) if constant_output else ()
    return Plan((segment,), (Source("segment", 0, 0), *more))


def test_the_wire_plan_is_what_the_protocol_says() -> None:
    segments = (
        Segment(0, "npu", (0,), (0,), (0,), (1, 2), (Source("input", 0),)),
        Segment(1, "cpu", (1,), (1,), (2, 9), (3,), (Source("segment", 0, 1), Source("constant", 9))),
    )
    plan = Plan(segments, (Source("segment", 1, 0), Source("input", 0)))
    files = {0: recipe_of(b"a"), 1: recipe_of(b"b")}
    constants: dict[int, Any] = {9: {"blob": "cc", "dtype": "int8", "shape": [2]}}
    assert wire_plan(plan, files, {"cpu": {"name": "cpu"}, "npu": {"name": "npu"}}, constants) == {
        "segments": [
            {"platform": "npu", "model": files[0].sha256, "inputs": [["input", 0]], "outputs": 2},
            {
                "platform": "cpu",
                "model": files[1].sha256,
                "inputs": [["segment", 0, 1], ["constant", "cc", "int8", [2]]],
                "outputs": 1,
            },
        ],
        "outputs": [["segment", 1, 0], ["input", 0]],
        "platforms": {"cpu": {"name": "cpu"}, "npu": {"name": "npu"}},
    }


# --- agents that misbehave ------------------------------------------------------------------------------------


def test_another_version_is_refused(board: LocalTransport) -> None:
    bundle = fake_bundle("serve({'hello': lambda number: hello(number, version=99)})")
    with pytest.raises(AgentError, match="speaks protocol 99, this EdgePlace speaks 1") as caught:
        AgentClient(board, bundle=bundle).start()
    assert caught.value.hint


@pytest.mark.parametrize(
    ("death", "how"),
    [("os._exit(9)", "exit code 9"), ("os.kill(os.getpid(), signal.SIGKILL)", "signal 9")],
)
def test_an_agent_that_dies_in_a_request_is_explained_and_started_again(
    fake: Callable[..., AgentClient], board: LocalTransport, death: str, how: str
) -> None:
    marker = Path(board.work_dir()) / "died"
    client = fake(
        answering_health_with(
            f"""
            if not os.path.exists({str(marker)!r}):
                open({str(marker)!r}, "w").close()
                print("famous last words", file=sys.stderr, flush=True)
                {death}
            send({{"ok": True, "id": number, "load": 0.5}})
            """
        )
    )
    with pytest.raises(AgentLost, match=f"{how}; its last words:\nfamous last words") as caught:
        client.health()
    assert Path(caught.value.hint.rpartition(": ")[2]).exists()
    with pytest.raises(AgentLost):
        client.health()
    assert not client.reconnect()
    assert client.health() == {"load": 0.5}


def test_a_real_agent_killed_in_a_request_is_started_again(
    agent: AgentClient, model_file: Callable[[str], Path]
) -> None:
    model = recipe_of(model_file("conv_chain").read_bytes())
    agent.on_progress = lambda event: os.kill(agent.info.pid, signal.SIGKILL)
    with pytest.raises(AgentLost, match="signal 9"):
        agent.try_segment(CPU, model)
    agent.on_progress = None
    agent.reconnect()
    assert agent.try_segment(CPU, model).outputs


def test_a_reboot_is_noticed(fake: Callable[..., AgentClient], board: LocalTransport) -> None:
    marker = Path(board.work_dir()) / "started"
    client = fake(
        fake_bundle(
            f"""
            again = os.path.exists({str(marker)!r})
            open({str(marker)!r}, "w").close()
            serve({{"hello": lambda number: hello(number, boot_id=str(again))}})
            """
        )
    )
    assert client.reconnect()
    assert not client.reconnect()


@pytest.mark.parametrize(
    "silence", ["threading.Event().wait()", "os.kill(os.getpid(), signal.SIGSTOP)"], ids=["hangs", "frozen"]
)
def test_a_silent_agent_is_given_up_and_ended(fake: Callable[..., AgentClient], silence: str) -> None:
    client = fake(answering_health_with(silence))
    client._conversation._heartbeat_timeout_s = 0.3  # type: ignore[union-attr]
    with pytest.raises(AgentLost, match="no sign of life"):
        client.health()
    assert is_gone(client.info.pid)


def test_an_agent_that_does_not_read_is_given_up(fake: Callable[..., AgentClient]) -> None:
    client = fake(answering_health_with("threading.Event().wait()"))
    conversation = client._conversation
    assert conversation is not None
    conversation._heartbeat_timeout_s = 0.3
    with pytest.raises(AgentLost, match="no sign of life"):
        conversation.request({"verb": "health"}, [bytes(64 << 20)])


def test_heartbeats_keep_a_slow_request_alive_until_its_deadline(fake: Callable[..., AgentClient]) -> None:
    beat = """
        def beat(number):
            while True:
                send({"event": "heartbeat", "id": number, "stage": "compile", "segment": 3, "platform": "npu",
                      "elapsed_s": 1.5, "runs": 7})
                if threading.Event().wait(0.05):
                    return
        serve({"shapes": beat})
        """
    seen: list[Progress] = []
    client = fake(fake_bundle(beat), on_progress=seen.append)
    client._heartbeat_timeout_s = 0.1  # only added to the deadline here
    with pytest.raises(AgentLost, match="did not answer 'shapes' in the time it was given"):
        client.shapes("0" * 64, deadline_s=1.0)
    assert seen[0] == Progress("heartbeat", "compile", 3, "npu", 1.5, {"runs": 7})
    assert len(seen) > 2


def test_chatter_before_the_marker_is_skipped(fake: Callable[..., AgentClient]) -> None:
    client = fake(fake_bundle("print('Welcome!', flush=True)\nserve({})"))
    assert client.info.machine == "toy"


def test_an_agent_that_never_starts_is_explained(board: LocalTransport) -> None:
    bundle = fake_bundle("print('no marker'); sys.exit('what a pity')")
    with pytest.raises(AgentLost, match="exit code 1; its last words:\nwhat a pity"):
        AgentClient(board, bundle=bundle).start()


def test_a_python_that_is_not_there_is_explained(board: LocalTransport) -> None:
    with pytest.raises(LinkError, match="cannot start '/no/such/python'"):
        AgentClient(board, python="/no/such/python").start()


def test_a_failure_carries_what_the_agent_says(fake: Callable[..., AgentClient]) -> None:
    client = fake(
        answering_health_with(
            "send({**p.failure_header('crashed', 'died', 'compile', 2, 'npu', 11), 'id': number})"
        )
    )
    for _ in range(2):
        with pytest.raises(AgentFailure, match="died") as caught:
            client.health()
        failure = caught.value
        assert (failure.kind, failure.stage, failure.segment, failure.platform, failure.code) == (
            "crashed",
            "compile",
            2,
            "npu",
            11,
        )


def test_a_late_answer_to_another_request_is_skipped(fake: Callable[..., AgentClient]) -> None:
    client = fake(
        answering_health_with(
            "send({'ok': True, 'id': number - 1, 'late': 1}); send({'ok': True, 'id': number, 'load': 2})"
        )
    )
    assert client.health() == {"load": 2}


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            "sys.stdout.buffer.write(b'x' * 40); sys.stdout.buffer.flush(); threading.Event().wait()",
            "too large",
        ),
        ("send([1]); threading.Event().wait()", "not a JSON object"),
        ("send({**p.error_header('protocol', 'what was that?'), 'id': None})", "what was that"),
    ],
    ids=["no frame", "no object", "about the stream"],
)
def test_what_is_not_the_protocol_is_an_agent_error(
    fake: Callable[..., AgentClient], statements: str, message: str
) -> None:
    client = fake(answering_health_with(statements))
    with pytest.raises(AgentError, match=message):
        client.health()


def test_an_answer_without_its_fields_is_an_agent_error(fake: Callable[..., AgentClient]) -> None:
    client = fake(fake_bundle("serve({})"))
    with pytest.raises(AgentError, match="answer to 'probe' is not as agreed: KeyError: 'available'"):
        client.probe(CPU, "0" * 64)
    assert client.health() == {}


def test_a_request_over_the_caps_is_refused_before_anything_is_sent(fake: Callable[..., AgentClient]) -> None:
    client = fake(fake_bundle("serve({})"))
    with pytest.raises(AgentRefused, match="too large") as caught:
        client.shapes("0" * 64, {0: [1]}, kernels="x" * (65 << 20))
    assert caught.value.kind == "too_large"
    assert client.health() == {}


def test_ctrl_c_ends_the_agent_and_the_client_can_be_closed(fake: Callable[..., AgentClient]) -> None:
    # The agent presses Ctrl-C itself: the host is then certain to be waiting for its answer.
    client = fake(answering_health_with("os.kill(os.getppid(), signal.SIGINT)\nthreading.Event().wait()"))
    with pytest.raises(KeyboardInterrupt):
        client.health()
    assert is_gone(client.info.pid)
    client.close()
    client.close()


def test_before_the_start_and_after_the_end_requests_are_explained(board: LocalTransport) -> None:
    client = AgentClient(board, bundle=fake_bundle("serve({})"))
    with pytest.raises(AgentError, match="not started"):
        client.health()
    with pytest.raises(AgentError, match="not started"):
        _ = client.info
    client.start()
    client.close()
    with pytest.raises(AgentError, match="not started"):
        client.health()


def test_the_log_is_kept_where_it_was_asked_for(board: LocalTransport, tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    bundle = fake_bundle("print('to the log', file=sys.stderr, flush=True)\nserve({})")
    for _ in range(2):
        with AgentClient(board, bundle=bundle, log_path=log):
            pass
    assert log.read_text() == "to the log\n" * 2


# --- over SSH -------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    server = Sshd(tmp_path / "sshd")
    yield server
    server.stop()


@pytest.fixture
def remote(server: Sshd) -> Iterator[SshTransport]:
    target = SshTarget(
        "127.0.0.1", server.port, getpass.getuser(), server.user_key, server.known_hosts, connect_timeout_s=20
    )
    transport = SshTransport(target)
    yield transport
    transport.close()


@pytest.mark.ssh
def test_over_ssh_it_is_installed_once_and_speaks_behind_a_chatty_shell(
    server: Sshd, remote: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server.home / ".bashrc").write_text("echo Welcome; echo noise >&2\n")
    sent: list[bool] = []
    put_file = remote.put_file
    monkeypatch.setattr(remote, "put_file", lambda *arguments: sent.append(put_file(*arguments)))
    for _ in range(2):
        with AgentClient(remote, python=sys.executable) as client:
            assert client.info.blobs_dir.startswith(str(server.home))
            data = os.urandom(3 << 20)
            client.ensure_segment(recipe_of(data, (1000, 2 << 20)))
    assert sent == [True, False]


@pytest.mark.ssh
def test_over_ssh_a_plan_gives_what_it_gives_here(
    agent: AgentClient, remote: SshTransport, model_file: Callable[[str], Path]
) -> None:
    model = recipe_of(model_file("conv_chain").read_bytes(), (200, 50))
    wire = wire_plan(whole_plan(), {0: model}, {"cpu": CPU})
    with AgentClient(remote, python=sys.executable) as there:
        outputs = []
        for client in (agent, there):
            client.ensure_segment(model)
            shapes = client.shapes(model, kernels="builtin").shapes
            given = next(shape for shape in shapes.values() if len(shape) == 4)
            sample = np.random.default_rng(0).random(given, dtype=np.float32)
            result = client.run(wire, [client.ensure_arrays([sample])], deadline_s=120)
            outputs.append(result.outputs[0][0])
            assert client.measure(wire, [client.ensure_arrays([sample])], SHORT).p50_ms > 0
    np.testing.assert_array_equal(outputs[0], outputs[1])


@pytest.mark.ssh
def test_a_connection_killed_in_a_request_is_a_lost_link_and_reconnects(
    server: Sshd, remote: SshTransport
) -> None:
    with AgentClient(remote, bundle=answering_health_with("threading.Event().wait()")) as client:
        first = client.info.pid
        timer = threading.Timer(0.2, server.signal_connections, [signal.SIGKILL])
        timer.start()
        with pytest.raises(LinkLost, match="the connection to the board broke"):
            client.health()
        timer.join()
        client.reconnect()
        assert client.info.pid != first


@pytest.mark.ssh
def test_an_agent_killed_over_ssh_is_a_lost_agent(remote: SshTransport) -> None:
    bundle = answering_health_with("os.kill(os.getpid(), signal.SIGKILL)")
    with AgentClient(remote, bundle=bundle) as client:
        with pytest.raises(AgentLost, match="the agent ended"):
            client.health()
        client.reconnect()


@pytest.mark.ssh
def test_a_frozen_board_is_noticed_by_the_missing_heartbeat_and_the_old_agent_makes_room(
    server: Sshd, remote: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AgentClient(remote, python=sys.executable) as client:
        array = np.arange(9)
        client.ensure_arrays([array])  # from here on the agent keeps the board for itself
        assert client._conversation is not None
        client._conversation._heartbeat_timeout_s = 0.5
        assert server.signal_connections(signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(ssh_module, "CLOSE_TIMEOUT_S", 0.3)
            with pytest.raises(AgentLost, match="no sign of life"):
                client.health()
        client.reconnect()
        client.ensure_arrays([array])  # not refused as "busy", though nobody told the old agent


@pytest.mark.ssh
def test_a_board_without_python_is_explained(remote: SshTransport) -> None:
    with pytest.raises(AgentLost, match="exit code 127") as caught:
        AgentClient(remote, python="no-such-python").start()
    assert "Python 3.9" in caught.value.hint
