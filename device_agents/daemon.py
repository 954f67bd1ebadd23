"""The agent's parent process: takes requests, keeps the blobs, watches the worker, and never runs foreign code.

Nothing a request says and nothing the worker does ends it. It ends when the host closes the stream, says ``bye``,
sends something that is no frame, or when it gets SIGTERM, SIGHUP or SIGINT; the worker ends with it.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Optional

from device_agents import identity, protocol, requests
from device_agents.board_lock import BoardLock
from device_agents.health import HealthSources, read_health
from device_agents.protocol import RequestError
from device_agents.store import CHUNK_BYTES, BlobStore
from device_agents.worker_handle import TICK_S, HostGone, Limits, WorkerDied, WorkerHandle

LOG = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_PROTOCOL = 2
MAX_JOB_PAYLOAD_BYTES = 64 * 1024 * 1024

Answer = tuple[dict[str, Any], Any]


class Daemon:
    """Serves one host over one byte stream each way.

    Args:
        incoming: Requests; unbuffered, so that what is not read yet can be seen by ``poll``.
        outgoing: Answers and events.
        root: The agent's folder; it is there and can be written.
        blob_cap_bytes: How many bytes of blobs are kept.
        start_worker: Starts a worker process with these variables added to its environment.
        sources: Where health facts come from.
        owner: Names the host's session (:class:`BoardLock`).
        tick_s: Time between two heartbeats.
    """

    def __init__(
        self,
        incoming: BinaryIO,
        outgoing: BinaryIO,
        root: Path,
        blob_cap_bytes: int,
        start_worker: Callable[[dict[str, str]], WorkerHandle],
        sources: HealthSources,
        owner: str = "",
        tick_s: float = TICK_S,
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._root = root
        self._blob_cap_bytes = blob_cap_bytes
        self._opened: Optional[BlobStore] = None
        self._lock = BoardLock(root / "lock", owner)
        self._start_worker = start_worker
        self._sources = sources
        self.tick_s = tick_s
        self._worker: Optional[WorkerHandle] = None
        self._environment: dict[str, str] = {}  # what the worker got beyond this process's own
        self._id: Any = None  # of the request being answered
        self._request_began = 0.0
        self._last_sent = 0.0

    def serve(self) -> int:
        """Answer requests until there is a reason to end; gives the exit code."""
        try:
            self._outgoing.write(protocol.MARKER)
            self._outgoing.flush()
            while self._serve_one():
                pass
        except (HostGone, protocol.StreamClosed, ConnectionError):
            LOG.info("the host closed the stream")
        except protocol.ProtocolError as error:
            LOG.error("%s", error)
            self._id = None
            self._send(protocol.error_header("protocol", str(error)))
            return EXIT_PROTOCOL
        finally:
            self._end_worker()
        return EXIT_OK

    def _serve_one(self) -> bool:
        """Take one request and answer it; False after ``bye``."""
        self._await_request()
        request, payload_bytes = protocol.read_header(self._incoming)
        payload = _Payload(self._incoming, payload_bytes)
        self._id = request.get("id")
        self._request_began = self._last_sent = time.monotonic()
        try:
            header, pieces = self._answer(request, payload)
        except RequestError as error:
            header, pieces = protocol.error_header(error.kind, error.message, **error.facts), b""
        except (HostGone, protocol.StreamClosed, ConnectionError):
            raise
        except Exception as error:
            LOG.exception("request %s", str(request.get("verb"))[:80])
            header, pieces = protocol.error_header("agent_bug", f"{type(error).__name__}: {error}"), b""
        payload.skip()
        self._send(header, pieces)
        return not (request.get("verb") == "bye" and header["ok"])

    def _await_request(self) -> None:
        """Wait for the host; meanwhile take what the worker prints, or it would wait for a reader forever."""
        while True:
            poll = select.poll()
            poll.register(self._incoming, select.POLLIN)
            printed = self._worker.stderr_descriptor if self._worker else None
            if printed is not None:
                poll.register(printed, select.POLLIN)
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._worker and printed in ready:
                self._worker.drain()
            if self._incoming.fileno() in ready:
                return

    def _answer(self, request: dict[str, Any], payload: _Payload) -> Answer:
        verb = request.get("verb")
        if verb not in protocol.VERBS:
            known = ", ".join(protocol.VERBS)
            raise RequestError(f"{str(verb)[:80]!r} is no verb; the verbs are {known}", "unknown_verb")
        if verb == "hello":
            return {"ok": True, **identity.describe(self._blobs_dir, self._sources.proc)}, b""
        if verb == "health":
            return {"ok": True, **read_health(self._sources)}, b""
        if verb == "bye":
            return {"ok": True}, b""
        store = self._store()
        if verb in requests.JOB_VERBS:
            return self._do_job(request, payload, store)
        if verb == "have":
            return {"ok": True, "missing": store.missing(requests.hashes_of(request))}, b""
        if verb == "put":
            store.put(request.get("sha256", ""), payload.left_bytes, payload)
        elif verb == "segment":
            store.splice(
                request.get("sha256", ""),
                requests.natural(request.get("size_bytes"), "size_bytes"),
                requests.constants_of(request),
                payload.left_bytes,
                payload,
            )
        else:
            return self._drop(request, store), b""
        return {"ok": True}, b""

    @property
    def _blobs_dir(self) -> Path:
        return self._root / "blobs"

    def _store(self) -> BlobStore:
        """The blobs, opened at the first request that needs them, under the lock that keeps other agents out.

        Two hosts that measure on one board spoil each other's numbers, so the second is refused; it may still ask
        ``hello`` and ``health``.

        Raises:
            RequestError: ``busy``: another agent works in this folder. ``io_error``: the folder cannot be read.
        """
        if self._opened is None:
            try:
                self._lock.take(self._heartbeat_when_due)
                self._opened = BlobStore(self._blobs_dir, self._blob_cap_bytes, self._heartbeat_when_due)
            except OSError as error:
                raise RequestError(
                    f"cannot read {self._blobs_dir}: {error.strerror or error}", "io_error"
                ) from error
        return self._opened

    def _drop(self, request: dict[str, Any], store: BlobStore) -> dict[str, Any]:
        what = request.get("what")
        if what == "blobs":
            return {"ok": True, "freed_bytes": store.clear()}
        if what == "sessions":
            self._end_worker()  # the surest way: libraries keep memory, devices and caches past a session's end
            return {"ok": True}
        raise RequestError(f"drop: {str(what)[:80]!r} is neither 'sessions' nor 'blobs'")

    def _do_job(self, request: dict[str, Any], payload: _Payload, store: BlobStore) -> Answer:
        total_s, stage_s = requests.deadlines_s(request)
        paths = store.paths(requests.job_blobs(request))
        if payload.left_bytes > MAX_JOB_PAYLOAD_BYTES:
            raise RequestError(f"a job's payload is at most {MAX_JOB_PAYLOAD_BYTES} bytes", "too_large")
        environment = requests.environment_of(request)
        job, data = {**request, "paths": paths}, payload.read_all()
        worker = self._ready_worker(environment)
        try:
            try:
                return self._run(worker, job, data, Limits(total_s, stage_s))
            except WorkerDied as death:
                if death.started or not worker.jobs_done:
                    raise
                # It died of something earlier, unnoticed: this job had no part in it.
                LOG.warning("worker %d died between jobs: %s", worker.pid, death.message)
                worker = self._ready_worker(environment)
                return self._run(worker, job, data, Limits(total_s, stage_s))
        except WorkerDied as death:
            place = worker.position
            LOG.warning("worker %d: %s: %s (%s)", worker.pid, death.kind, death.message, place)
            return protocol.failure_header(
                death.kind, death.message, place.stage, place.segment, place.platform, death.code
            ), b""

    def _run(self, worker: WorkerHandle, job: dict[str, Any], data: bytes, limits: Limits) -> Answer:
        return worker.run(
            job,
            data,
            limits,
            on_progress=lambda event: self._send_event(event, worker),
            on_tick=lambda: self._send_event({"event": "heartbeat"}, worker),
            host=self._incoming.fileno(),
        )

    def _ready_worker(self, environment: dict[str, str]) -> WorkerHandle:
        """A worker that had these variables when it started: later is too late for drivers and for the linker.

        Variables of earlier jobs are kept as long as they do not contradict, so that jobs which take turns share a
        worker and its compiled sessions.
        """
        if self._worker is not None and not environment.items() <= self._environment.items():
            LOG.info("another environment is needed; the worker is started again")
            self._end_worker()
        if self._worker is None or not self._worker.is_alive():
            self._end_worker()
            self._environment.update(environment)
            try:
                self._worker = self._start_worker(self._environment)
            except OSError as error:
                raise RequestError(f"cannot start a worker: {error}", "worker_error") from error
        return self._worker

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _send(self, header: dict[str, Any], pieces: Any = b"") -> None:
        protocol.write_frame(self._outgoing, {**header, "id": self._id}, pieces)
        self._last_sent = time.monotonic()

    def _send_event(self, event: dict[str, Any], worker: Optional[WorkerHandle] = None) -> None:
        """Send an event if the host takes it now: an event is never worth stopping the clock for."""
        poll = select.poll()
        poll.register(self._outgoing, select.POLLOUT)
        ready = poll.poll(0)
        if ready and ready[0][1] & (select.POLLERR | select.POLLHUP):
            if worker is not None:
                worker.end()
            raise HostGone
        if ready:
            facts: dict[str, Any] = {"elapsed_s": round(time.monotonic() - self._request_began, 3)}
            if worker is not None:
                facts.update(vars(worker.position))
            self._send({**facts, **event})

    def _heartbeat_when_due(self) -> None:
        """For work of the parent itself that takes long: splicing and hashing large files."""
        if time.monotonic() - self._last_sent >= self.tick_s:
            self._send_event({"event": "heartbeat"})


class _Payload:
    """A request's payload, still in the stream: a large one goes to its file without being in memory as a whole."""

    def __init__(self, stream: BinaryIO, size_bytes: int) -> None:
        self._stream = stream
        self.left_bytes = size_bytes

    def read(self, size: int) -> bytes:
        """At most ``size`` of the bytes left, nothing when there are none.

        Raises:
            StreamClosed: The host is gone.
        """
        wanted = min(size, self.left_bytes)
        if not wanted:
            return b""
        data = self._stream.read(wanted)
        if not data:
            raise protocol.StreamClosed(f"the stream ended {self.left_bytes} bytes before the payload's end")
        self.left_bytes -= len(data)
        return data

    def read_all(self) -> bytes:
        """All bytes left."""
        return b"".join(iter(lambda: self.read(CHUNK_BYTES), b""))

    def skip(self) -> None:
        """Read past what nobody wanted."""
        while self.read(CHUNK_BYTES):
            pass
