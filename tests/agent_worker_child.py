"""A worker whose jobs misbehave on request: the real ``device_agents.worker`` with another plan runner.

Started as ``python agent_worker_child.py [memory_bytes]``. What a job does stands in its field ``do``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from device_agents import protocol, worker
from device_agents.runtimes import StageError


class WorkerContext:
    def __init__(self, progress: Callable[..., None]) -> None:
        self.progress = progress
        self.jobs = 0


def handle_job(
    job: dict[str, Any], payload: bytes, context: WorkerContext
) -> tuple[dict[str, Any], list[bytes]]:
    context.jobs += 1
    if job.get("stage") is not None:
        context.progress(stage=job["stage"], segment=3, platform="npu", note="about to")
    answer = DEEDS[job["do"]](job, payload)
    return {"jobs": context.jobs, "pid": os.getpid(), "answer": answer}, [payload, payload]


def _print(job: dict[str, Any], payload: bytes) -> None:
    print("printed by Python")
    os.write(1, b"written to descriptor 1\n" * 5000)
    ctypes.CDLL(None).printf(b"printed by C\n")
    ctypes.CDLL(None).fflush(None)
    os.write(2, b"written to descriptor 2\n")


def _crash(job: dict[str, Any], payload: bytes) -> None:
    os.write(2, b"the driver says: register map lost\n")
    ctypes.string_at(0)


def _raise(error: BaseException) -> Callable[[dict[str, Any], bytes], None]:
    def deed(job: dict[str, Any], payload: bytes) -> None:
        raise error

    return deed


def _hang_with_the_gil(job: dict[str, Any], payload: bytes) -> None:
    ctypes.PyDLL(None).pause()  # PyDLL keeps the GIL; pause() returns on no signal that Python handles


def _close_and_hang(job: dict[str, Any], payload: bytes) -> None:
    os.closerange(3, 256)
    ctypes.CDLL(None).pause()


def _write_garbage(job: dict[str, Any], payload: bytes) -> None:
    for descriptor in range(3, 16):  # what a library with a wrong descriptor would do
        try:
            os.write(descriptor, b"\xff" * 64)
        except OSError:
            continue


def _leave_a_child(job: dict[str, Any], payload: bytes) -> None:
    """Die while a forked child still holds every pipe."""
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).pause()
    os.write(2, b"left %d\n" % child)
    os._exit(9)


def _wait_for_a_signal(job: dict[str, Any], payload: bytes) -> None:
    os.read(SIGNALS, 1)


def _allocate(job: dict[str, Any], payload: bytes) -> None:
    bytearray(1 << 45)


def _abort_for_memory(job: dict[str, Any], payload: bytes) -> None:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()


DEEDS: dict[str, Callable[[dict[str, Any], bytes], Any]] = {
    "answer": lambda job, payload: "fine",
    "environment": lambda job, payload: os.environ.get("EP_A", "-") + os.environ.get("EP_B", "-"),
    "print": _print,
    "crash": _crash,
    "exit0": lambda job, payload: os._exit(0),
    "exit_python": _raise(SystemExit(4)),
    "kill": lambda job, payload: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang_with_the_gil,
    "close": _close_and_hang,
    "garbage": _write_garbage,
    "leave_child": _leave_a_child,
    "wait": _wait_for_a_signal,
    "allocate": _allocate,
    "bad_alloc": _abort_for_memory,
    "value_error": _raise(ValueError("tensor 7 has no size")),
    "request_error": _raise(protocol.RequestError("no such option", "bad_request")),
    "stage_error": _raise(StageError("unsupported", "op CUMSUM is not supported", "compile", 5, "gpu")),
}

if __name__ == "__main__":
    SIGNALS, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    runner = types.ModuleType("device_agents.plan_runner")
    runner.handle_job = handle_job  # type: ignore[attr-defined]
    runner.WorkerContext = WorkerContext  # type: ignore[attr-defined]
    sys.modules[runner.__name__] = runner
    sys.exit(worker.main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
