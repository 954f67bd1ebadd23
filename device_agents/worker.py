"""The child process in which every foreign library runs. Its death is a result; the parent puts a name on it.

The parent (:mod:`device_agents.daemon`) and this process speak the same frames as host and agent, over two pipes.
A job is the host's request as it came, with one addition: ``paths``, a map from the hash of every blob the request
names to the local file that holds it. The files are complete, have that hash and stay while the job runs.

What a job's fields look like when they arrive here (the parent has checked all of it):

* ``model``: a hash; ``platform``: the JSON object of :mod:`device_agents.protocol`.
* ``plan``/``plans``: as in :mod:`device_agents.protocol`; segments name earlier segments only; each source
  ``["constant", sha256, dtype, shape]`` is in ``paths``.
* an *array blob* is ``{"blob": sha256, "dtype": name, "shape": [...]}``; the file holds the raw bytes that
  :func:`device_agents.arrays.decode_array` reads (C order, little endian; dtype ``string`` is length-prefixed).
* ``inputs`` of ``run``, ``measure`` and ``interleave``: a list of samples, each a list of array blobs, one per graph
  input. ``inputs`` of ``try`` and ``probe``: one list of array blobs or ``null`` (the worker makes up that input), one
  per input of the file; absent or empty means all are made up.
* ``deadline_s`` and ``stage_deadline_s`` are the parent's business.

The code that does a job is ``device_agents.plan_runner``, imported at the first job, so that a library that crashes
when it is imported is reported like any other death::

    context = WorkerContext(progress)                          # once per worker
    header, pieces = handle_job(job, payload, context)         # per job; header without "ok" and "id" is completed

``progress(stage="compile", segment=2, platform="npu", **facts)`` tells the parent what is about to happen; call it
*before* each stage that can hang or die. The last call places a death, and resets ``stage_deadline_s``. Stages:
``compile``, ``prepare``, ``first_run``, ``warmup``, ``timing``, ``check``.

What ``handle_job`` may raise, and what the host then gets:

* ``device_agents.runtimes.StageError`` -> the failure it describes,
* :class:`device_agents.protocol.RequestError` -> an error (the request is wrong),
* ``MemoryError`` -> failure ``out_of_memory``, and the worker ends,
* anything else -> failure by the last stage: ``compile_failed``, ``prepare_failed``, else ``invoke_failed``; before
  any stage it is an error of kind ``worker_error``.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import threading
import traceback
from typing import Any, BinaryIO, Callable, Optional, cast

from device_agents import protocol

LOG = logging.getLogger(__name__)

KIND_BY_STAGE = {"compile": "compile_failed", "prepare": "prepare_failed"}
EXIT_HOST_GONE = 0
EXIT_OUT_OF_MEMORY = 77
"""The worker ends itself after a MemoryError: what a library does after a failed allocation is not to be trusted."""
_PR_SET_PDEATHSIG = 1
_OOM_SCORE = 500


class Channel:
    """The worker's end of the two pipes to its parent. Any thread may send."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._lock = threading.Lock()
        self.stage = ""
        self.segment: Optional[int] = None
        self.platform: Optional[str] = None

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next job; forgets where the last one was."""
        job, payload = protocol.read_frame(self._incoming)
        self.stage, self.segment, self.platform = "", None, None
        self.send({"event": "started"})
        return job, payload

    def send(self, header: dict[str, Any], payload: Any = b"") -> None:
        """Send one frame to the parent."""
        with self._lock:
            protocol.write_frame(self._outgoing, header, payload)

    def progress(
        self,
        *,
        stage: str = "",
        segment: Optional[int] = None,
        platform: Optional[str] = None,
        **facts: Any,
    ) -> None:
        """Tell the parent what is about to happen, so that a death can be placed."""
        self.stage, self.segment, self.platform = stage, segment, platform
        self.send({"event": "progress", "stage": stage, "segment": segment, "platform": platform, **facts})


def main(memory_bytes: Optional[int] = None, parent_pid: Optional[int] = None) -> int:
    """Do jobs until the parent closes the pipe. Gives the exit code.

    Args:
        memory_bytes: Limit of the address space, or None.
        parent_pid: Who started this process; when it is gone already, there is nothing to do.
    """
    channel = Channel(*take_standard_streams())
    _prepare_process(memory_bytes)
    if parent_pid is not None and os.getppid() != parent_pid:
        return EXIT_HOST_GONE
    handler: Optional[Callable[..., tuple[dict[str, Any], Any]]] = None
    context: Any = None
    while True:
        try:
            job, payload = channel.receive()
        except protocol.StreamClosed:
            return EXIT_HOST_GONE
        try:
            if handler is None:
                handler, context = _load_plan_runner(channel.progress)
            header, pieces = handler(job, payload, context)
            channel.send({**header, "ok": header.get("ok", True)}, pieces)
        except MemoryError as error:
            channel.send(_failure(channel, "out_of_memory", error))
            return EXIT_OUT_OF_MEMORY
        except Exception as error:  # foreign code raises whatever it likes; each is an answer
            LOG.debug("job %s failed", job.get("verb"), exc_info=True)
            answer = _answer_for(channel, error)
            channel.send(answer)
            if answer.get("failure", {}).get("kind") == "out_of_memory":
                return EXIT_OUT_OF_MEMORY


def take_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Move the protocol away from descriptors 0 and 1, where libraries read and print.

    Afterwards descriptor 0 is empty and descriptor 1 is the log (standard error). The input is not buffered: what has
    not been read can be seen by ``poll``.
    """
    nothing = os.open(os.devnull, os.O_RDWR)  # it gets number 2 when standard error is closed, and stays that
    for descriptor in (0, 1):
        os.set_blocking(descriptor, True)  # they may be shared with a process that reads without blocking
    incoming = os.fdopen(os.dup(0), "rb", buffering=0)  # dup makes them close on exec
    outgoing = cast(BinaryIO, _WholeWriter(os.dup(1)))
    os.dup2(nothing, 0)
    if nothing != 2:
        os.close(nothing)
    os.dup2(2, 1)
    return incoming, outgoing


class _WholeWriter:
    """Writes all it is given before it returns and holds nothing back.

    A buffered file keeps what a peer who stopped reading did not take, and then hangs the process when it ends.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: protocol.Buffer) -> int:
        view = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        left = view
        while left.nbytes:
            left = left[os.write(self._descriptor, left) :]
        return view.nbytes

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        return self._descriptor


def _prepare_process(memory_bytes: Optional[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a shared terminal is the parent's to handle
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, 0)
    )  # a core file of a 1 GB process stalls a board for a minute
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    try:
        import ctypes  # a minimal Python has none, and the parent gets on without

        # A parent that was killed outright cannot end us; the kernel can, even while a library holds the GIL.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        LOG.debug("no prctl here")
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # the kernel takes the worker, not the parent
            file.write(str(_OOM_SCORE))
    except OSError:
        LOG.debug("cannot set the oom score")


def _load_plan_runner(progress: Callable[..., None]) -> tuple[Callable[..., Any], Any]:
    try:
        from device_agents import plan_runner
    except Exception as error:  # a numpy of the wrong version raises more than ImportError
        raise protocol.RequestError(
            f"this Python cannot run models: {error} (the agent needs numpy and ai-edge-litert or tflite-runtime)",
            "runtime_missing",
        ) from error
    return plan_runner.handle_job, plan_runner.WorkerContext(progress)


def _answer_for(channel: Channel, error: Exception) -> dict[str, Any]:
    if isinstance(error, protocol.RequestError):
        return protocol.error_header(error.kind, error.message, **error.facts)
    from device_agents.runtimes import (
        StageError,
    )  # loaded with the plan runner; this module must do without it

    if isinstance(error, StageError):
        return protocol.failure_header(
            error.kind,
            error.message,
            error.stage or channel.stage,
            channel.segment if error.segment is None else error.segment,
            error.platform or channel.platform,
        )
    if not channel.stage:
        LOG.error("%s", "".join(traceback.format_exception(type(error), error, error.__traceback__)))
        return protocol.error_header("worker_error", f"{type(error).__name__}: {error}")
    return _failure(channel, KIND_BY_STAGE.get(channel.stage, "invoke_failed"), error)


def _failure(channel: Channel, kind: str, error: BaseException) -> dict[str, Any]:
    message = f"{type(error).__name__}: {error}".rstrip(": ")
    return protocol.failure_header(kind, message, channel.stage, channel.segment, channel.platform)
