"""The worker and its handle: whatever happens in the child gets its name, and the parent's clock goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import wait_until_gone, watched

from device_agents.worker_handle import HostGone, Limits, WorkerDied, WorkerHandle

CHILD = [sys.executable, str(Path(__file__).with_name("agent_worker_child.py"))]
PATIENT = Limits(60.0)
PLACE = {"stage": "prepare"}


class Log:
    def __init__(self) -> None:
        self.data = b""

    def __call__(self, data: bytes) -> None:
        self.data += data


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def worker(log: Log) -> Iterator[WorkerHandle]:
    handle = WorkerHandle(CHILD, log=log, tick_s=0.02)
    yield handle
    handle.end()


def do(worker: WorkerHandle, deed: str, limits: Limits = PATIENT, **fields: Any) -> dict[str, Any]:
    return worker.run({"verb": "run", "do": deed, **fields}, b"", limits)[0]


def test_jobs_are_answered_in_one_process_that_keeps_its_context(worker: WorkerHandle) -> None:
    first, pieces = worker.run({"verb": "run", "do": "answer"}, b"abc", PATIENT)
    assert (first["ok"], first["answer"], first["jobs"], pieces) == (True, "fine", 1, b"abcabc")
    assert first["pid"] == worker.pid
    assert do(worker, "answer")["jobs"] == 2


def test_a_payload_larger_than_a_pipe_goes_both_ways(worker: WorkerHandle) -> None:
    payload = os.urandom(3_000_000)
    assert worker.run({"verb": "run", "do": "answer"}, payload, PATIENT)[1] == payload * 2


def test_prints_go_to_the_log_and_not_into_the_stream(worker: WorkerHandle, log: Log) -> None:
    assert do(worker, "print")["ok"]
    assert do(worker, "answer")["ok"]
    worker.end()
    for text in (b"printed by Python", b"printed by C", b"written to descriptor 2"):
        assert text in log.data
    assert log.data.count(b"written to descriptor 1\n") == 5000


@pytest.mark.parametrize(
    ("deed", "kind", "code", "words"),
    [
        ("crash", "crashed", signal.SIGSEGV, "SIGSEGV; it last printed: the driver says: register map lost"),
        ("exit0", "exited", 0, "exited with code 0"),
        ("exit_python", "exited", 4, "exited with code 4"),
        ("kill", "out_of_memory", None, "SIGKILL, not sent by the agent"),
        ("bad_alloc", "out_of_memory", None, "std::bad_alloc"),
        ("garbage", "crashed", None, "damaged"),
        ("leave_child", "exited", 9, "exited with code 9"),
    ],
)
def test_a_death_gets_its_name_and_its_place(
    worker: WorkerHandle, deed: str, kind: str, code: int | None, words: str
) -> None:
    with pytest.raises(WorkerDied) as caught:
        do(worker, deed, **PLACE)
    death, place = caught.value, worker.position
    assert (death.kind, death.code, death.started) == (kind, code, True)
    assert words in death.message
    assert (place.stage, place.segment, place.platform) == ("prepare", 3, "npu")
    assert not worker.is_alive()


def test_a_worker_that_closes_its_pipe_but_lives_is_ended(
    worker: WorkerHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("device_agents.worker_handle.KILL_GRACE_S", 0.05)
    with watched(worker.pid) as process:
        with pytest.raises(WorkerDied, match="closed its pipe but did not end") as caught:
            do(worker, "close", **PLACE)
        wait_until_gone(process)
    assert caught.value.kind == "crashed"


def test_what_a_worker_started_ends_with_it(worker: WorkerHandle) -> None:
    with pytest.raises(WorkerDied, match=r"left \d+") as caught:
        do(worker, "leave_child")
    pid = int(caught.value.message.split("left ")[1].split()[0])
    with contextlib.suppress(ProcessLookupError), watched(pid) as process:
        wait_until_gone(process)


def test_a_job_that_holds_the_gil_is_ended_at_its_deadline(worker: WorkerHandle) -> None:
    with watched(worker.pid) as process:
        with pytest.raises(WorkerDied, match=r"no answer within 1\.5 s") as caught:
            do(worker, "hang", Limits(1.5), **PLACE)
        wait_until_gone(process)
    assert (caught.value.kind, caught.value.code) == ("timeout", None)
    assert worker.position.stage == "prepare"


def test_a_stage_has_its_own_deadline_that_begins_with_it(worker: WorkerHandle) -> None:
    do(worker, "answer")  # it has started; from here on only the stage counts
    with pytest.raises(WorkerDied, match=r"no answer within 0\.3 s"):
        do(worker, "hang", Limits(60.0, stage_s=0.3), **PLACE)


def test_the_parent_ticks_while_the_worker_is_stopped(worker: WorkerHandle) -> None:
    stopped: list[bool] = []
    ticks: list[bool] = []

    def stop(event: dict[str, Any]) -> None:
        os.kill(worker.pid, signal.SIGSTOP)
        stopped.append(True)

    def tick() -> None:
        ticks.extend(stopped)
        if len(ticks) == 3:
            os.kill(worker.pid, signal.SIGCONT)
            os.kill(worker.pid, signal.SIGUSR1)

    job = {"verb": "run", "do": "wait", **PLACE}
    answer, _ = worker.run(job, b"", PATIENT, on_progress=stop, on_tick=tick)
    assert answer["ok"]
    assert len(ticks) >= 3


def test_progress_arrives_before_the_deed_with_its_facts(worker: WorkerHandle) -> None:
    events: list[dict[str, Any]] = []
    with pytest.raises(WorkerDied):
        worker.run({"verb": "run", "do": "crash", **PLACE}, b"", PATIENT, on_progress=events.append)
    assert events == [
        {"event": "progress", "stage": "prepare", "segment": 3, "platform": "npu", "note": "about to"}
    ]


@pytest.mark.parametrize(
    ("deed", "stage", "expected"),
    [
        (
            "value_error",
            "compile",
            ("compile_failed", "ValueError: tensor 7 has no size", "compile", 3, "npu"),
        ),
        (
            "value_error",
            "prepare",
            ("prepare_failed", "ValueError: tensor 7 has no size", "prepare", 3, "npu"),
        ),
        ("value_error", "timing", ("invoke_failed", "ValueError: tensor 7 has no size", "timing", 3, "npu")),
        ("stage_error", "prepare", ("unsupported", "op CUMSUM is not supported", "compile", 5, "gpu")),
    ],
)
def test_an_exception_is_a_failure_and_the_worker_stays(
    worker: WorkerHandle, deed: str, stage: str, expected: tuple[Any, ...]
) -> None:
    failure = do(worker, deed, stage=stage)["failure"]
    assert tuple(failure[key] for key in ("kind", "message", "stage", "segment", "platform")) == expected
    assert do(worker, "answer")["pid"] == worker.pid


def test_out_of_memory_is_a_failure_and_ends_the_worker(worker: WorkerHandle) -> None:
    with watched(worker.pid) as process:
        failure = do(worker, "allocate", stage="timing")["failure"]
        wait_until_gone(process)
    assert (failure["kind"], failure["stage"], failure["segment"]) == ("out_of_memory", "timing", 3)
    assert not worker.is_alive()


def test_what_is_wrong_before_any_stage_is_an_error(worker: WorkerHandle) -> None:
    assert do(worker, "value_error")["error"] == {
        "kind": "worker_error",
        "message": "ValueError: tensor 7 has no size",
    }
    assert do(worker, "request_error", **PLACE)["error"]["kind"] == "bad_request"


def test_the_host_hanging_up_ends_the_job(worker: WorkerHandle) -> None:
    ours, theirs = os.pipe()
    with watched(worker.pid) as process:
        with pytest.raises(HostGone):
            worker.run(
                {"verb": "run", "do": "hang", **PLACE},
                b"",
                PATIENT,
                on_progress=lambda event: os.close(theirs),
                host=ours,
            )
        wait_until_gone(process)
    os.close(ours)


def test_a_program_that_is_no_worker_is_named_with_its_words() -> None:
    handle = WorkerHandle([sys.executable, "-c", "raise ImportError('no module named numpy')"])
    with pytest.raises(WorkerDied, match="no module named numpy") as caught:
        do(handle, "answer")
    assert (caught.value.kind, caught.value.code, caught.value.started) == ("exited", 1, False)


def test_a_worker_that_prints_without_end_cannot_stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device_agents.worker_handle.LOG_CAP_BYTES", 1 << 20)
    log = Log()
    handle = WorkerHandle([sys.executable, "-c", "import os\nwhile True: os.write(2, b'x' * 65536)"], log=log)
    with pytest.raises(WorkerDied) as caught:
        do(handle, "answer", Limits(0.5))
    assert caught.value.kind == "timeout"
    assert len(log.data) < 3 << 20
    assert b"the rest is not logged" in log.data
