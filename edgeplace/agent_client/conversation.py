"""Requests and answers over one stream to a running agent, with every wait bounded.

A dead or frozen peer must be noticed, and nothing below this layer notices all of them. So one thread reads frames,
one writes them, and the caller waits on a queue with a clock: no sign of life for the heartbeat time, or the end of
the deadline, and the stream is aborted, which frees both threads.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from device_agents import protocol
from edgeplace.deadline import Deadline
from edgeplace.errors import AgentError, EdgePlaceError, LinkError
from edgeplace.transport import Stream

LOG = logging.getLogger(__name__)

WRITE_CHUNK_BYTES = 1 << 18
"""The writer reports a sign of life after each: small enough for a slow link to be told from a dead one."""
LOG_TAIL_BYTES = 1500
_EXIT_WAIT_S = 2.0
_NOT_FOUND = 127

_HINTS = {
    "busy": "one host at a time: wait until the other session ends, or end the agent on the board",
    "no_space": "free some space on the board, or let the agent forget its blobs: drop('blobs')",
    "runtime_missing": "on the board: python3 -m pip install ai-edge-litert",
    "root_unusable": "check the permissions of that folder on the board",
    "io_error": "check the board's disk",
}


class AgentLost(LinkError):
    """The agent's process ended, or it gives no sign of life. Measurements made so far are not affected."""

    kind = "agent_lost"


class LinkLost(LinkError):
    """The connection to the board broke. Whether the board is still there is not known."""

    kind = "link_lost"


class AgentRefused(AgentError):
    """The agent's answer to a request is an error: the request was wrong, or the agent cannot serve it now.

    Attributes:
        kind: ``bad_request``, ``missing_blob``, ``busy``, ... (``device_agents.protocol.RequestError``).
        facts: What else the agent said.
    """

    def __init__(self, kind: str, message: str, facts: Mapping[str, Any], *, where: str = "") -> None:
        super().__init__(message, hint=_HINTS.get(kind, ""), where=where)
        self.kind = kind
        self.facts = facts


class AgentFailure(EdgePlaceError):
    """Foreign code failed while the agent worked on a request: a result, which whoever measures turns into a value.

    Attributes:
        kind: One of the failure classes of DESIGN section 6.
        stage: ``compile``, ``prepare``, ``first_run``, ``warmup``, ``timing``, ``check`` or empty.
        segment: Id of the segment it happened in, when known.
        platform: Name of the platform it happened on, when known.
        code: Signal number of ``crashed``, exit code of ``exited``.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        stage: str = "",
        segment: int | None = None,
        platform: str | None = None,
        code: int | None = None,
        where: str = "",
    ) -> None:
        super().__init__(message, where=where)
        self.kind = kind
        self.stage = stage
        self.segment = segment
        self.platform = platform
        self.code = code


@dataclass(frozen=True, slots=True)
class Progress:
    """What the agent says while it works on a request.

    Attributes:
        event: ``heartbeat`` or ``progress``.
        stage: ``compile``, ``prepare``, ``first_run``, ``warmup``, ``timing``, ``check`` or empty.
        segment: Id of the segment it is at, when known.
        platform: Name of the platform it is at, when known.
        elapsed_s: Time since the request arrived.
        facts: What else it says.
    """

    event: str
    stage: str = ""
    segment: int | None = None
    platform: str | None = None
    elapsed_s: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The frame that ends a request well."""

    header: dict[str, Any]
    payload: bytes


_Frame = tuple[dict[str, Any], bytes]
_Outgoing = Sequence[Union[bytes, memoryview]]
_Inbox = Union[_Frame, Exception]


class Conversation:
    """One agent process from its marker to its end.

    Not to be used by two threads at once. After any exception but :class:`AgentRefused` and :class:`AgentFailure` it is
    over: the stream has been aborted, and only :meth:`close` makes sense.

    Args:
        stream: The agent's stdin and stdout; owned from here on.
        log_path: Where its stderr goes; the end of it is quoted when the agent ends unasked.
        heartbeat_timeout_s: How long the agent may be silent while it owes an answer.
        link_alive: Whether the connection still works, to tell a lost agent from a lost link.
        where: The board, for messages.
    """

    def __init__(
        self,
        stream: Stream,
        log_path: Path,
        heartbeat_timeout_s: float,
        link_alive: Callable[[], bool],
        where: str,
    ) -> None:
        self._stream = stream
        self._log_path = log_path
        self._log_start_bytes = log_path.stat().st_size if log_path.exists() else 0
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._link_alive = link_alive
        self._where = where
        self._next_id = 1
        self._over = False
        self._inbox: queue.SimpleQueue[_Inbox] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[_Outgoing | None] = queue.SimpleQueue()
        self._last_sign_s = time.monotonic()
        self._threads = [
            threading.Thread(target=target, name=f"agent-{name}", daemon=True)
            for name, target in (("reader", self._read), ("writer", self._write))
        ]
        for thread in self._threads:
            thread.start()

    def request(
        self,
        header: dict[str, Any],
        payload: Sequence[protocol.Buffer] = (),
        deadline: Deadline | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Answer:
        """Send a request and wait for its answer.

        Args:
            header: ``verb`` and its fields.
            payload: Pieces that follow each other; not copied.
            deadline: When to give up; ``None`` means as long as the agent gives signs of life.
            on_progress: Called with each event, in this thread.

        Raises:
            AgentRefused: The answer is an error; the conversation goes on.
            AgentFailure: The answer is that foreign code failed; the conversation goes on.
            AgentError: What came is not the protocol.
            AgentLost: The agent ended, is silent, or did not answer before the deadline.
            LinkLost: The connection broke.
        """
        if self._over:
            raise AgentLost("the agent was ended after an earlier error", where=self._where)
        number = self._next_id
        self._next_id += 1
        pieces = [memoryview(piece).cast("B") for piece in payload]
        try:
            prefix = protocol.encode_prefix({**header, "id": number}, sum(map(len, pieces)))
        except protocol.ProtocolError as error:
            raise AgentRefused("too_large", str(error), {}, where=self._where) from error
        try:
            self._last_sign_s = time.monotonic()
            self._outbox.put([prefix, *pieces])
            while True:
                frame, data = self._next_frame(str(header["verb"]), deadline or Deadline(None))
                if frame.get("id") is not None and frame["id"] != number:
                    LOG.debug("%s: late answer to request %s", self._where, frame["id"])
                elif "event" in frame:
                    if on_progress is not None:
                        on_progress(_progress_of(frame))
                elif "error" in frame:
                    raise self._refusal(frame["error"])
                elif "failure" in frame:
                    raise self._failure(frame["failure"])
                else:
                    return Answer(frame, data)
        except (AgentRefused, AgentFailure):
            raise
        except BaseException:  # Ctrl-C too: the agent is in the middle of something nobody waits for any more
            self._over = True
            self._stream.abort()
            raise

    def close(self) -> None:
        """Say goodbye when there is still somebody to say it to, and end the agent in any case."""
        if not self._over:
            with contextlib.suppress(LinkError, AgentError):
                self.request({"verb": "bye"}, deadline=Deadline(_EXIT_WAIT_S))
            self._over = True
        self._outbox.put(None)
        self._stream.close()
        for thread in self._threads:
            thread.join(_EXIT_WAIT_S)

    def _next_frame(self, verb: str, deadline: Deadline) -> _Frame:
        while True:
            silent_s = time.monotonic() - self._last_sign_s
            left_s = deadline.remaining_s()
            if silent_s >= self._heartbeat_timeout_s:
                raise AgentLost(
                    f"no sign of life from the agent for {silent_s:.0f} s (request '{verb}')",
                    where=self._where,
                    hint="the board, the link to it or the agent is frozen; run the same command again",
                )
            if left_s == 0:
                raise AgentLost(
                    f"the agent did not answer '{verb}' in the time it was given", where=self._where
                )
            wait_s = self._heartbeat_timeout_s - silent_s
            try:
                item = self._inbox.get(timeout=wait_s if left_s is None else min(wait_s, left_s))
            except queue.Empty:
                continue
            if isinstance(item, Exception):
                raise self._explain(item) from item
            return item

    def _read(self) -> None:
        try:
            chatter = protocol.skip_to_marker(self._stream.reader)
            if chatter.strip():
                LOG.info("%s: before the agent's marker: %r", self._where, chatter[-400:])
            while True:
                frame = protocol.read_frame(self._stream.reader)
                self._last_sign_s = time.monotonic()
                self._inbox.put(frame)
        except (protocol.ProtocolError, OSError, ValueError) as error:  # ValueError: the file was closed
            self._inbox.put(error)

    def _write(self) -> None:
        writer = self._stream.writer
        try:
            while (pieces := self._outbox.get()) is not None:
                for piece in pieces:
                    for start in range(0, len(piece), WRITE_CHUNK_BYTES):
                        writer.write(piece[start : start + WRITE_CHUNK_BYTES])
                        self._last_sign_s = time.monotonic()
                writer.flush()
        except (OSError, ValueError) as error:
            # The reader sees the end of the stream as well, and after the agent's last words.
            LOG.debug("%s: cannot write any more: %s", self._where, error)

    def _explain(self, error: Exception) -> LinkError | AgentError:
        """Why the stream ended, or what was wrong in it."""
        if isinstance(error, protocol.ProtocolError) and not isinstance(error, protocol.StreamClosed):
            return AgentError(f"the stream to the agent is broken: {error}", where=self._where)
        status = self._stream.exit_status(_EXIT_WAIT_S)
        if status is None and not self._link_alive():
            return LinkLost(
                "the connection to the board broke",
                where=self._where,
                hint="check that the board is on and reachable, then run the same command again",
            )
        how = "ended" if status is None else f"ended with {_describe_status(status)}"
        tail = self._log_tail()
        return AgentLost(
            f"the agent {how}" + (f"; its last words:\n{tail}" if tail else ""),
            where=self._where,
            hint=f"is Python 3.9 or newer on the board? name another with the profile's agent.python; log: {self._log_path}"
            if status == _NOT_FOUND
            else f"the agent's log: {self._log_path}",
        )

    def _refusal(self, error: Mapping[str, Any]) -> AgentRefused:
        facts = {key: value for key, value in error.items() if key not in ("kind", "message")}
        return AgentRefused(
            str(error.get("kind", "")), str(error.get("message", "")), facts, where=self._where
        )

    def _failure(self, failure: Mapping[str, Any]) -> AgentFailure:
        return AgentFailure(
            str(failure.get("kind", "")),
            str(failure.get("message", "")),
            stage=str(failure.get("stage") or ""),
            segment=failure.get("segment"),
            platform=failure.get("platform"),
            code=failure.get("code"),
            where=self._where,
        )

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError), self._log_path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(self._log_start_bytes, end - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace").strip()
        return ""


@contextlib.contextmanager
def agreed(verb: str) -> Iterator[None]:
    """While an answer is read: a field that is missing or of the wrong kind becomes an explained error."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise AgentError(
            f"the agent's answer to '{verb}' is not as agreed: {type(error).__name__}: {error}"
        ) from error


def _describe_status(status: int) -> str:
    return f"exit code {status}" if status >= 0 else f"signal {-status}"


def _progress_of(frame: dict[str, Any]) -> Progress:
    known = ("event", "stage", "segment", "platform", "elapsed_s")
    return Progress(
        event=str(frame["event"]),
        stage=str(frame.get("stage") or ""),
        segment=frame.get("segment"),
        platform=frame.get("platform"),
        elapsed_s=float(frame.get("elapsed_s") or 0.0),
        facts={key: value for key, value in frame.items() if key not in (*known, "id")},
    )
