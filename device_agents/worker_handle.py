"""The parent's side of the worker: start it, give it a job, watch it, end it, and say what it died of.

The parent runs no foreign code and has one thread: a loop over the worker's pipes, the host's hang-up and the clock.
A worker that hangs, holds the GIL or prints without end cannot stop that loop.
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Optional

from device_agents import protocol
from device_agents.frame_assembler import Frame, FrameAssembler

LOG = logging.getLogger(__name__)

TICK_S = 1.0
TERM_GRACE_S = 0.5
KILL_GRACE_S = 5.0
TAIL_BYTES = 8192
TAIL_LINES = 6
LOG_CAP_BYTES = 16 * 1024 * 1024
_READ_BYTES = 1 << 20
_DRAIN_READS = 64  # more than a pipe holds
_PEER_CLOSED = getattr(select, "POLLRDHUP", 0)
"""For sockets; a pipe's hang-up is always reported. Data that is there is none of this loop's business."""
_OUT_OF_MEMORY_SIGNS = ("std::bad_alloc", "MemoryError", "Cannot allocate memory", "out of memory")


class HostGone(Exception):
    """The host closed the stream while a job ran."""


class WorkerDied(Exception):
    """The worker ended, or was ended, before it answered.

    Attributes:
        kind: Failure class: ``crashed``, ``exited``, ``timeout`` or ``out_of_memory``.
        message: What happened, with the last lines the worker printed.
        code: Signal number of ``crashed``, exit code of ``exited``.
        started: The worker had begun the job.
    """

    def __init__(self, kind: str, message: str, code: Optional[int], started: bool) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.code = code
        self.started = started


@dataclass
class Position:
    """Where in its job the worker is, from its last progress event."""

    stage: str = ""
    segment: Optional[int] = None
    platform: Optional[str] = None


@dataclass(frozen=True)
class Limits:
    """How long a job may take: in all, and since the last progress event."""

    total_s: float
    stage_s: Optional[float] = None


class WorkerHandle:
    """One worker process.

    Args:
        command: What starts it; it speaks frames on its standard input and output.
        environment: Its environment, or None for this process's.
        log: Takes what it prints, piece by piece; must not block.
        tick_s: The longest time between two calls of ``on_tick``.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Optional[dict[str, str]] = None,
        log: Callable[[bytes], None] = lambda data: None,
        tick_s: float = TICK_S,
    ) -> None:
        self._log = log
        self._tick_s = tick_s
        self._log_budget_bytes = LOG_CAP_BYTES
        self._tail = b""
        self._stderr_open = True
        self._frames = FrameAssembler()
        self._closed = False  # its end of the answers' pipe
        self._unsent: deque[memoryview] = deque()
        self._answers: deque[Frame] = deque()
        self._started = False
        self.position = Position()
        self.jobs_done = 0
        self._oom_kills = _count_oom_kills()
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # its own process group: what it starts ends with it
        )
        assert self._process.stdin is not None  # all three are pipes; this tells the type checker
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._to_worker = self._process.stdin.fileno()
        self._from_worker = self._process.stdout.fileno()
        self._stderr = self._process.stderr.fileno()
        for descriptor in (self._to_worker, self._from_worker, self._stderr):
            os.set_blocking(descriptor, False)

    @property
    def pid(self) -> int:
        """The worker's process id, which is also its process group's."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the process is still there. Does not reap it: its number stays its own until :meth:`end`."""
        if self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def run(
        self,
        job: dict[str, Any],
        payload: Any,
        limits: Limits,
        on_progress: Callable[[dict[str, Any]], None] = lambda event: None,
        on_tick: Callable[[], None] = lambda: None,
        host: Optional[int] = None,
    ) -> Frame:
        """Have the worker do one job; gives its answer. After an exception the worker is gone.

        Args:
            job: The job's header.
            payload: The job's payload, bytes-like.
            limits: When to give up.
            on_progress: Gets every progress event.
            on_tick: Called at least every ``tick_s`` seconds while the job runs.
            host: A descriptor that hangs up when nobody waits for the answer any more.

        Raises:
            WorkerDied: The worker ended, or was ended because a limit ran out.
            HostGone: ``host`` hung up.
        """
        self.position = Position()
        self._started = False
        self._answers.clear()
        view = memoryview(payload)
        self._unsent.append(memoryview(protocol.encode_prefix(job, view.nbytes)))
        self._unsent.append(view.cast("B") if view.nbytes else view[:0])
        stage_s = limits.total_s if limits.stage_s is None else limits.stage_s
        now = time.monotonic()
        end, stage_end, next_tick = now + limits.total_s, now + stage_s, now + self._tick_s
        while not self._answers:
            now = time.monotonic()
            if now >= next_tick:
                on_tick()
                next_tick = now + self._tick_s
            if now >= min(end, stage_end):
                raise self._end_late(limits.total_s if now >= end else stage_s)
            progress = self._wait(min(next_tick, end, stage_end) - now, host)
            if not self._answers and (self._closed or not self.is_alive()):
                progress += self._read_frames()  # what it said before it ended
                if not self._answers:
                    raise self._end_dead()
            for event in progress:
                stage_end = time.monotonic() + stage_s
                on_progress(event)
        self.jobs_done += 1
        return self._answers.popleft()

    def drain(self) -> None:
        """Take what the worker printed between jobs, so that it never waits for a reader."""
        for _ in range(_DRAIN_READS):
            if not self._read_stderr():
                return

    @property
    def stderr_descriptor(self) -> Optional[int]:
        """Becomes readable when :meth:`drain` has something to do; None when nothing more can come."""
        return self._stderr if self._stderr_open else None

    def end(self) -> None:
        """End the worker and everything it started, at once when asking nicely does not help."""
        if self._process.returncode is None:
            self._signal(signal.SIGTERM)
            self._await_exit(TERM_GRACE_S)
            # All of the group, also when its first process has gone: it is not reaped yet, so the number is still ours.
            self._signal(signal.SIGKILL)
            if not self._await_exit(KILL_GRACE_S):
                LOG.error("worker %d does not end after SIGKILL; a driver holds it", self.pid)
            self._process.poll()
            self.drain()
            self._stderr_open = False
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _wait(self, timeout_s: float, host: Optional[int]) -> list[dict[str, Any]]:
        """Wait until one of the pipes has something or takes something, and serve it; gives the progress events."""
        poll = select.poll()
        poll.register(self._from_worker, select.POLLIN)
        if self._stderr_open:
            poll.register(self._stderr, select.POLLIN)
        if self._unsent:
            poll.register(self._to_worker, select.POLLOUT)
        if host is not None:
            poll.register(host, _PEER_CLOSED)
        ready = [descriptor for descriptor, _ in poll.poll(math.ceil(max(0.0, timeout_s) * 1000))]
        if host in ready:
            self.end()
            raise HostGone
        if self._to_worker in ready:
            self._write()
        if self._stderr in ready:
            self._read_stderr()
        return self._read_frames() if self._from_worker in ready else []

    def _write(self) -> None:
        while self._unsent:
            try:
                sent = os.write(self._to_worker, self._unsent[0])
            except BlockingIOError:
                return
            except BrokenPipeError:  # it is dead or closed its input; the loop finds out which
                self._unsent.clear()
                return
            rest = self._unsent.popleft()[sent:]
            if rest.nbytes:
                self._unsent.appendleft(rest)

    def _read_frames(self) -> list[dict[str, Any]]:
        """Take what is there; keeps the answer, gives the progress events."""
        progress: list[dict[str, Any]] = []
        try:
            for header, payload in self._frames.feed(self._read(self._from_worker)):
                event = header.get("event")
                if event == "started":
                    self._started = True
                elif event == "progress":
                    self.position = Position(
                        str(header.get("stage") or ""), header.get("segment"), header.get("platform")
                    )
                    progress.append(header)
                else:
                    self._answers.append((header, payload))
        except _PipeClosed:
            self._closed = True
        except protocol.ProtocolError as error:
            raise self._end_garbled(error) from None
        return progress

    def _read_stderr(self) -> bool:
        """Take some of what it printed: to the log (as long as that stays a sane size), and the end for messages.

        Returns:
            True when there may be more. It is the caller who decides to go on: a worker can print as fast as this
            reads, and the clock needs its turns.
        """
        try:
            data = self._read(self._stderr) if self._stderr_open else b""
        except _PipeClosed:
            self._stderr_open = False
            return False
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if data and self._log_budget_bytes > 0:
            self._log(data)
            self._log_budget_bytes -= len(data)
            if self._log_budget_bytes <= 0:
                self._log(b"\n(this worker prints too much; the rest is not logged)\n")
        return bool(data)

    @staticmethod
    def _read(descriptor: int) -> bytes:
        """What is there, possibly nothing.

        Raises:
            _PipeClosed: The other end is closed.
        """
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            raise _PipeClosed
        return data

    def _end_late(self, limit_s: float) -> WorkerDied:
        self.end()
        return self._died("timeout", f"no answer within {limit_s:g} s")

    def _end_garbled(self, error: protocol.ProtocolError) -> WorkerDied:
        self.end()
        return self._died("crashed", f"the worker's answer is damaged: {error}")

    def _end_dead(self) -> WorkerDied:
        """Name the death of a process that ended by itself (or closed its pipe, and then is ended)."""
        by_itself = self._await_exit(KILL_GRACE_S)
        oom_kills = _count_oom_kills()
        self.end()
        status = self._process.returncode
        tail = self._tail.decode(errors="replace")
        if not by_itself or status is None:
            return self._died("crashed", "the worker closed its pipe but did not end")
        if status == -signal.SIGKILL:
            seen = oom_kills is not None and self._oom_kills is not None and oom_kills > self._oom_kills
            reason = (
                "the kernel ran out of memory" if seen else "most likely the kernel's out-of-memory killer"
            )
            return self._died("out_of_memory", f"killed by SIGKILL, not sent by the agent: {reason}")
        if status != 0 and any(sign in tail for sign in _OUT_OF_MEMORY_SIGNS):
            return self._died("out_of_memory", f"ended for want of memory ({_status_text(status)})")
        kind = "crashed" if status < 0 else "exited"
        return self._died(kind, _status_text(status), abs(status))

    def _died(self, kind: str, message: str, code: Optional[int] = None) -> WorkerDied:
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines() if line.strip()]
        printed = (
            "; it last printed: " + " | ".join(line[:200] for line in lines[-TAIL_LINES:]) if lines else ""
        )
        return WorkerDied(kind, message + printed, code, self._started)

    def _await_exit(self, timeout_s: float) -> bool:
        """Wait for the process to end without reaping it, so that its number cannot go to another one."""
        end = time.monotonic() + timeout_s
        pause_s = 0.001
        while self.is_alive():
            if time.monotonic() >= end:
                return False
            time.sleep(pause_s)  # there is no wait with a limit that leaves the process unreaped
            pause_s = min(2 * pause_s, 0.05)
        return True

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class _PipeClosed(Exception):
    """The worker's end of a pipe is closed."""


def _status_text(status: int) -> str:
    if status >= 0:
        return f"the worker's process exited with code {status} in the middle of the job"
    try:
        return f"the worker was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"the worker was ended by signal {-status}"


def _count_oom_kills() -> Optional[int]:
    """How many processes the kernel has killed for want of memory since boot; None when it does not say."""
    try:
        with open("/proc/vmstat") as file:
            counts = dict(line.split() for line in file)
        return int(counts["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None
