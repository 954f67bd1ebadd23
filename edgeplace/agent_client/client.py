"""The agent on a board as a Python object: installed, started, spoken to, and started again when it is lost."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy.typing as npt

import device_agents
from device_agents import protocol
from device_agents.arrays import decode_array
from device_agents.bundle import build_agent_bytes
from edgeplace.agent_client.board_blobs import BoardBlobs
from edgeplace.agent_client.conversation import AgentLost, Answer, Conversation, Progress, agreed
from edgeplace.agent_client.results import (
    AgentInfo,
    Array,
    InterleaveResult,
    MeasureResult,
    ProbeResult,
    RunResult,
    ShapesResult,
    TryResult,
)
from edgeplace.agent_client.wire import ArrayBlob, array_blobs
from edgeplace.deadline import Deadline
from edgeplace.errors import AgentError
from edgeplace.tflite.segment_file import SegmentFile
from edgeplace.transport import Transport

LOG = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
"""For the agent to start and say hello: an old board's Python takes its time."""
FACTS_TIMEOUT_S = 30.0
"""For what the agent answers itself, without the worker."""
ORPHAN_TIMEOUT_S = 15.0
AGENT_FILE_PREFIX = "agent-"

# $1 process, $2 what its command line must hold: the number may be somebody else's by now.
_END_AGENT = 'tr "\\0" "\\n" <"/proc/$1/cmdline" 2>/dev/null | grep -qF -- "/$2" && kill -KILL "$1"'

Model = str | SegmentFile


class AgentClient:
    """A running agent on one board.

    A context manager: entering installs the agent (nothing is sent when it is there), starts it and checks its
    version; leaving ends it. Not to be used by two threads at once.

    What foreign code does wrong is raised as :class:`AgentFailure`; the agent is ready for the next request then, and
    also after :class:`AgentRefused`. After a lost agent or link (:class:`AgentLost`, :class:`LinkLost`, both
    ``LinkError``), and after Ctrl-C, it has been ended, and :meth:`reconnect` starts it again; what was sent to the
    board is still there.

    Args:
        transport: The way to the board; owned by the caller.
        python: The Python to start it with; empty for the transport's own choice.
        root: The folder on the board that the agent keeps its files in; empty for one in the transport's work folder.
        log_path: Where the agent's stderr goes (appended); ``None`` for a temporary file.
        heartbeat_timeout_s: How long the agent may be silent while it owes an answer. It speaks every second.
        on_progress: Called with every event of a request that is being worked on.
        bundle: The agent's zipapp; ``None`` for the one of this installation.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        python: str = "",
        root: str = "",
        log_path: Path | None = None,
        heartbeat_timeout_s: float = 20.0,
        on_progress: Callable[[Progress], None] | None = None,
        bundle: bytes | None = None,
    ) -> None:
        self.transport = transport
        self.on_progress = on_progress
        self._python = python or transport.python
        self._root = root
        self._discard_log = log_path is None
        self._log_path = _temporary_log() if log_path is None else log_path
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._bundle = bundle
        self._conversation: Conversation | None = None
        self._info: AgentInfo | None = None
        self._blobs = BoardBlobs(self._request)

    # --- life -------------------------------------------------------------------------------------------------

    def start(self) -> AgentInfo:
        """Install the agent when it is not there, start it, and check that it speaks our protocol.

        Raises:
            LinkError: The board cannot be reached, or the agent does not start.
            AgentError: It speaks another version.
        """
        board = self.transport
        work_dir = board.work_dir()
        bundle = self._bundle
        if bundle is None:
            bundle = build_agent_bytes(Path(device_agents.__file__).parent)
        path = f"{work_dir}/{AGENT_FILE_PREFIX}{hashlib.sha256(bundle).hexdigest()[:20]}.pyz"
        if board.put_file(bundle, path):
            LOG.info("%s: installed the agent as %s", board.describe(), path)
        argv = [self._python, path, "--root", self._root or f"{work_dir}/agent"]
        self._conversation = Conversation(
            board.open_stream(argv, self._log_path),
            self._log_path,
            self._heartbeat_timeout_s,
            board.alive,
            board.describe(),
        )
        self._blobs.forget()
        try:
            return self.hello()
        except BaseException:
            self._end_conversation()
            raise

    def reconnect(self) -> bool:
        """End what is left of the agent and start it again, over a new connection.

        Returns:
            True when the board was booted since the last start.
        """
        before = self._info
        self._end_conversation()
        # A connection whose other end froze still counts as alive: only a new one is known to work.
        self.transport.close()
        self.transport.connect()
        if before is not None:
            self._end_orphan(before.pid)
        now = self.start()
        rebooted = before is not None and before.boot_id != now.boot_id
        LOG.info(
            "%s: the agent runs again%s", self.transport.describe(), " after a reboot" if rebooted else ""
        )
        return rebooted

    def close(self) -> None:
        """End the agent. Idempotent; the transport stays open."""
        self._end_conversation()
        if self._discard_log:
            self._log_path.unlink(missing_ok=True)

    def __enter__(self) -> AgentClient:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def info(self) -> AgentInfo:
        """Who answers; known since the start.

        Raises:
            AgentError: The agent was not started.
        """
        if self._info is None:
            raise AgentError("the agent was not started", where=self.transport.describe())
        return self._info

    def hello(self) -> AgentInfo:
        """Ask the agent who it is.

        Raises:
            AgentError: It speaks another version of the protocol.
        """
        answer = self._request({"verb": "hello"}, deadline=Deadline(START_TIMEOUT_S))
        version = answer.header.get("version")
        if version != protocol.PROTOCOL_VERSION:
            raise AgentError(
                f"the agent speaks protocol {version}, this EdgePlace speaks {protocol.PROTOCOL_VERSION}",
                where=self.transport.describe(),
                hint="end the other agent, or use the EdgePlace version it came with",
            )
        with agreed("hello"):
            self._info = AgentInfo.of(answer.header)
        return self._info

    def health(self) -> dict[str, object]:
        """The board now: governor, frequency_khz, temperature_c, throttled, load, memory_available_bytes, ..."""
        header = dict(self._request({"verb": "health"}, deadline=Deadline(FACTS_TIMEOUT_S)).header)
        return {key: value for key, value in header.items() if key not in ("ok", "id")}

    def drop(self, what: Literal["sessions", "blobs"] = "sessions") -> None:
        """Make the agent forget compiled segments (by ending its worker), or all blobs."""
        self._request({"verb": "drop", "what": what}, deadline=Deadline(FACTS_TIMEOUT_S))
        if what == "blobs":
            self._blobs.forget()

    # --- blobs ------------------------------------------------------------------------------------------------

    def ensure_blobs(self, blobs: Mapping[str, protocol.Buffer]) -> None:
        """Send what the board does not have.

        Args:
            blobs: Hash -> bytes. They are kept (not copied) to be sent again when the board had to forget them.
        """
        self._blobs.ensure(blobs)

    def ensure_arrays(self, arrays: Sequence[npt.NDArray[Any]]) -> list[ArrayBlob]:
        """Send arrays the board does not have; gives what names them in requests."""
        described, data = array_blobs(arrays)
        self._blobs.ensure(data)
        return described

    def ensure_segment(self, file: SegmentFile) -> None:
        """Have the board put the file together: constants it does not have are sent, then the recipe."""
        self._blobs.ensure_segments([file])

    def ensure_segments(self, files: Iterable[SegmentFile]) -> None:
        """:meth:`ensure_segment` for many, with one question about all of them."""
        self._blobs.ensure_segments(files)

    # --- foreign code -----------------------------------------------------------------------------------------

    def probe(
        self,
        platform: Mapping[str, Any],
        model: Model,
        inputs: Sequence[ArrayBlob | None] = (),
        *,
        deadline_s: float | None = None,
    ) -> ProbeResult:
        """Whether a platform is there: has a small file compiled and run on it.

        Args:
            platform: The platform on the wire.
            model: A small file, or the hash of one the board has.
            inputs: One per input of the file; the agent makes up those that are ``None``, or all when empty.
            deadline_s: After this the agent ends the worker; ``None`` for the agent's own default.

        Raises:
            AgentFailure: The attempt ended the worker.
        """
        request = {
            "verb": "probe",
            "platform": dict(platform),
            "model": self._model(model),
            "inputs": [*inputs],
        }
        answer = self._job(request, deadline_s)
        with agreed("probe"):
            return ProbeResult.of(answer.header)

    def try_segment(
        self,
        platform: Mapping[str, Any],
        model: Model,
        inputs: Sequence[ArrayBlob | None] = (),
        *,
        timing: Mapping[str, Any] | None = None,
        deadline_s: float | None = None,
        stage_deadline_s: float | None = None,
    ) -> TryResult:
        """Compile one file alone on a platform and run it once.

        Args:
            platform: The platform on the wire.
            model: The file, or the hash of one the board has.
            inputs: One per input of the file; the agent makes up those that are ``None``, or all when empty.
            timing: Fields of ``device_agents.timing.TimingPlan`` to time it shortly; ``None`` to not.
            deadline_s: After this the agent ends the worker; ``None`` for the agent's own default.
            stage_deadline_s: The same since the last sign of progress.

        Raises:
            AgentFailure: The platform refuses the file, or failed on it.
        """
        request: dict[str, Any] = {
            "verb": "try",
            "platform": dict(platform),
            "model": self._model(model),
            "inputs": [*inputs],
        }
        if timing is not None:
            request["timing"] = dict(timing)
        answer = self._job(request, deadline_s, stage_deadline_s)
        with agreed("try"):
            return TryResult.of(answer.header, answer.payload)

    def run(
        self,
        plan: Mapping[str, Any],
        inputs: Sequence[Sequence[ArrayBlob]],
        *,
        intermediates: bool = False,
        deadline_s: float | None = None,
        stage_deadline_s: float | None = None,
    ) -> RunResult:
        """Run a plan once per sample, from a fresh state.

        Args:
            plan: From :func:`~edgeplace.agent_client.wire_plan`; its files are on the board.
            inputs: Per sample, one array per graph input.
            intermediates: Give every output of every segment too.
            deadline_s: After this the agent ends the worker; ``None`` for the agent's own default.
            stage_deadline_s: The same since the last sign of progress.

        Raises:
            AgentFailure: A segment failed; ``segment`` and ``platform`` say which.
        """
        samples = [list(sample) for sample in inputs]
        request = {"verb": "run", "plan": plan, "inputs": samples, "intermediates": intermediates}
        answer = self._job(request, deadline_s, stage_deadline_s)

        def outputs_of(sample: int, tensors: Sequence[Array]) -> tuple[Array, ...]:
            return self._graph_outputs(plan, samples[sample], tensors)

        with agreed("run"):
            return RunResult.of(answer.header, answer.payload, outputs_of if intermediates else None)

    def measure(
        self,
        plan: Mapping[str, Any],
        inputs: Sequence[Sequence[ArrayBlob]],
        timing: Mapping[str, Any] | None = None,
        *,
        deadline_s: float | None = None,
        stage_deadline_s: float | None = None,
    ) -> MeasureResult:
        """Time a plan in steady state; several samples take turns.

        Args:
            plan: From :func:`~edgeplace.agent_client.wire_plan`; its files are on the board.
            inputs: Per sample, one array per graph input.
            timing: Fields of ``device_agents.timing.TimingPlan``; ``None`` for its defaults.
            deadline_s: After this the agent ends the worker; ``None`` for the agent's own default.
            stage_deadline_s: The same since the last sign of progress.

        Raises:
            AgentFailure: A segment failed; ``segment`` and ``platform`` say which.
        """
        samples = [list(sample) for sample in inputs]
        request = {"verb": "measure", "plan": plan, "inputs": samples, "timing": dict(timing or {})}
        answer = self._job(request, deadline_s, stage_deadline_s)
        with agreed("measure"):
            return MeasureResult.of(answer.header)

    def interleave(
        self,
        plans: Sequence[Mapping[str, Any]],
        inputs: Sequence[Sequence[ArrayBlob]],
        *,
        rounds: int,
        runs_per_round: int,
        budget_s: float | None = None,
        deadline_s: float | None = None,
        stage_deadline_s: float | None = None,
    ) -> InterleaveResult:
        """Time several plans in rounds (A B A B ...), so that what the board does meanwhile hits all of them.

        Args:
            plans: From :func:`~edgeplace.agent_client.wire_plan`; their files are on the board.
            inputs: Per sample, one array per graph input.
            rounds: How often each plan gets its turn.
            runs_per_round: Timed runs in each turn.
            budget_s: No round begins to count after this; the first always does.
            deadline_s: After this the agent ends the worker; ``None`` for the agent's own default.
            stage_deadline_s: The same since the last sign of progress.

        Raises:
            AgentFailure: A segment failed.
        """
        request: dict[str, Any] = {
            "verb": "interleave",
            "plans": list(plans),
            "inputs": [list(sample) for sample in inputs],
            "rounds": rounds,
            "runs_per_round": runs_per_round,
        }
        if budget_s is not None:
            request["budget_s"] = budget_s
        answer = self._job(request, deadline_s, stage_deadline_s)
        with agreed("interleave"):
            return InterleaveResult.of(answer.header)

    def shapes(
        self,
        model: Model,
        input_shapes: Mapping[int, Sequence[int]] | None = None,
        *,
        kernels: str = "",
        runtime: str = "",
        deadline_s: float | None = None,
    ) -> ShapesResult:
        """The shape of every tensor of a file once its inputs are resized.

        Args:
            model: The file, or the hash of one the board has.
            input_shapes: Tensor number -> shape; others stay as they are.
            kernels: Kernel set (``builtin``, ``reference``, ``xnnpack``); empty for the agent's choice.
            runtime: ``litert`` or ``tflite``; empty for whichever is there.
            deadline_s: After this the agent ends the worker; ``None`` for the agent's own default.

        Raises:
            AgentFailure: The shapes do not fit the model.
        """
        resized = {str(tensor): list(shape) for tensor, shape in (input_shapes or {}).items()}
        request = {"verb": "shapes", "model": self._model(model), "input_shapes": resized}
        request |= {key: value for key, value in (("kernels", kernels), ("runtime", runtime)) if value}
        answer = self._job(request, deadline_s)
        with agreed("shapes"):
            return ShapesResult.of(answer.header)

    # --- inside -----------------------------------------------------------------------------------------------

    def _model(self, model: Model) -> str:
        if isinstance(model, str):
            return model
        self.ensure_segment(model)
        return model.sha256

    def _graph_outputs(
        self, plan: Mapping[str, Any], sample: Sequence[ArrayBlob], tensors: Sequence[Array]
    ) -> tuple[Array, ...]:
        """The graph outputs of a run whose answer holds every output of every segment, segment by segment."""
        starts = [0]
        for segment in plan["segments"]:
            starts.append(starts[-1] + int(segment["outputs"]))
        outputs: list[Array] = []
        for kind, *rest in plan["outputs"]:
            if kind == "segment":
                outputs.append(tensors[starts[rest[0]] + rest[1]])
                continue
            blob = (
                sample[rest[0]] if kind == "input" else ArrayBlob(blob=rest[0], dtype=rest[1], shape=rest[2])
            )
            outputs.append(decode_array(blob["dtype"], blob["shape"], self._blobs.data(blob["blob"])))
        return tuple(outputs)

    def _job(
        self, request: dict[str, Any], deadline_s: float | None, stage_deadline_s: float | None = None
    ) -> Answer:
        """A request for the worker. The agent keeps its deadlines; ours is behind it, in case the agent does not."""
        deadline = Deadline(None)
        if deadline_s is not None:
            request["deadline_s"] = deadline_s
            deadline = Deadline(deadline_s + self._heartbeat_timeout_s)
        if stage_deadline_s is not None:
            request["stage_deadline_s"] = stage_deadline_s
        return self._blobs.ask_resending(request, deadline=deadline)

    def _request(
        self,
        header: dict[str, Any],
        payload: Sequence[protocol.Buffer] = (),
        deadline: Deadline | None = None,
    ) -> Answer:
        if self._conversation is None:
            raise AgentError("the agent was not started", where=self.transport.describe())
        try:
            return self._conversation.request(header, payload, deadline, self.on_progress)
        except AgentLost:
            self._discard_log = False  # the message names it
            raise

    def _end_orphan(self, pid: int) -> None:
        """End an earlier agent that does not know yet that its connection broke, and keeps the board for itself.

        After a cable was out, the board's sshd may hold the old connection for hours.
        """
        done = self.transport.run(
            ["sh", "-c", _END_AGENT, "sh", str(pid), AGENT_FILE_PREFIX], ORPHAN_TIMEOUT_S
        )
        if done.returncode == 0:
            LOG.info(
                "%s: ended the agent of the lost connection (process %d)", self.transport.describe(), pid
            )

    def _end_conversation(self) -> None:
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            conversation.close()


def _temporary_log() -> Path:
    handle, name = tempfile.mkstemp(prefix="edgeplace-agent-", suffix=".log")
    os.close(handle)
    return Path(name)
