"""A plan made ready to run in the worker: its segments compiled, wired, and a clock on each part.

A *runnable plan* is a list of steps. Each step copies its inputs from where they are (graph inputs, constants, outputs
of earlier steps) into its session, and invokes it. Outputs of a step are usually views of the runtime's own memory, so
a tensor is copied once on its way from one segment to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Callable, Optional

import numpy as np

from device_agents.job_fields import read_array
from device_agents.protocol import RequestError
from device_agents.runtimes import Session, StageError
from device_agents.session_cache import Key, SessionCache

Place = tuple[int, int]
"""Where an array is during a run: row (0 graph inputs, 1 constants, 2 + segment), position in it."""
_INPUTS, _CONSTANTS, _FIRST_SEGMENT = 0, 1, 2


class WorkerContext:
    """What lives as long as the worker: the compiled sessions, and the way to report progress.

    Args:
        progress: ``progress(stage=..., segment=..., platform=..., **facts)``; called before each stage that can hang
            or die, so that a death can be placed.
        cache_bytes: Cap of the sessions kept; by default a share of the free memory.
    """

    def __init__(self, progress: Callable[..., None], cache_bytes: Optional[int] = None) -> None:
        self.progress = progress
        self.sessions = SessionCache(cache_bytes)


@dataclass(frozen=True)
class Step:
    """One segment of a runnable plan."""

    segment: int
    platform: str
    session: Session
    sources: tuple[Place, ...]


class RunnablePlan:
    """A plan whose segments are compiled. Not to be used beyond the job it was made for.

    Attributes:
        steps: In execution order.
        outputs: Where the graph outputs are after a run.
        prepare_ms: Load and compile time of each segment, 0 for one that was still compiled.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        outputs: Sequence[Place],
        constants: Sequence[Any],
        prepare_ms: Sequence[float],
    ) -> None:
        self.steps = tuple(steps)
        self.outputs = tuple(outputs)
        self.prepare_ms = tuple(prepare_ms)
        self._constants = list(constants)
        self._program = [(step.session.feed, step.session.invoke, step.sources) for step in self.steps]

    def reset(self) -> None:
        """Bring every segment's state back to that of a fresh start.

        Raises:
            StageError: A segment could not be opened again.
        """
        for step in self.steps:
            with _Placed(step):
                step.session.reset()
                step.session.fresh = False  # a run follows

    def execute(
        self,
        inputs: Sequence[Any],
        stamps_ns: list[int],
        before: Optional[Callable[[Step], None]] = None,
    ) -> list[Sequence[Any]]:
        """One run.

        Args:
            inputs: One array per graph input.
            stamps_ns: Gets 1 + 2 x segments clock readings: before the first hand-over, then after each hand-over and
                after each invocation in turn.
            before: Called before each segment; for runs that may end the process, not for runs that are timed.

        Returns:
            The rows that places point into. They hold views, valid until the next run.

        Raises:
            StageError: A segment failed; ``segment`` and ``platform`` say which.
        """
        clock_ns = perf_counter_ns
        rows: list[Sequence[Any]] = [inputs, self._constants]
        stamp = stamps_ns.append
        try:
            stamp(clock_ns())
            for feed, invoke, sources in self._program:
                if before is not None:
                    before(self.steps[len(rows) - _FIRST_SEGMENT])
                feed([rows[row][position] for row, position in sources])
                stamp(clock_ns())
                rows.append(invoke())
                stamp(clock_ns())
        except StageError as error:
            step = self.steps[len(rows) - _FIRST_SEGMENT]
            step.session.broken = True
            error.segment, error.platform = step.segment, step.platform
            raise
        return rows

    def outputs_of(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Copies of the graph outputs after a run."""
        return [np.array(rows[row][position]) for row, position in self.outputs]

    def everything_of(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Copies of every output of every segment after a run, segment by segment."""
        return [np.array(array) for row in rows[_FIRST_SEGMENT:] for array in row]


class _Placed:
    """Puts segment and platform on a :class:`StageError` that passes through."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, StageError):
            error.segment, error.platform = self._step.segment, self._step.platform


def make_runnable(plan: Mapping[str, Any], paths: Mapping[str, str], context: WorkerContext) -> RunnablePlan:
    """Compile what is not compiled yet, and wire the segments.

    Args:
        plan: As in :mod:`device_agents.protocol`.
        paths: Hash -> file, for every blob of the plan.
        context: Has the sessions.

    Raises:
        StageError: A segment cannot be compiled; ``segment`` and ``platform`` say which.
        RequestError: The plan does not fit its files.
    """
    steps: list[Step] = []
    prepare_ms: list[float] = []
    constants: list[Any] = []
    taken: set[Key] = set()
    for number, segment in enumerate(plan["segments"]):
        name = segment["platform"]
        platform = {**plan["platforms"][name], "name": name}
        sha256 = segment["model"]
        try:
            session, opened = context.sessions.get(
                platform, sha256, paths[sha256], taken=taken, progress=stage_reporter(context, number, name)
            )
        except StageError as error:
            error.segment, error.platform = number, name
            raise
        sources = tuple(_place(source, constants, paths) for source in segment["inputs"])
        if len(sources) != len(session.inputs) or segment["outputs"] != len(session.outputs):
            raise RequestError(
                f"segment {number} has {len(sources)} inputs and {segment['outputs']} outputs in the plan, "
                f"{len(session.inputs)} and {len(session.outputs)} in its file"
            )
        steps.append(Step(number, name, session, sources))
        prepare_ms.append(session.prepare_ms if opened else 0.0)
    outputs = [_place(source, constants, paths) for source in plan["outputs"]]
    return RunnablePlan(steps, outputs, constants, prepare_ms)


def stage_reporter(context: WorkerContext, segment: Optional[int], platform: str) -> Callable[[str], None]:
    """What reports the stages of opening one session, and where it stands."""
    return lambda stage: context.progress(stage=stage, segment=segment, platform=platform)


def _place(source: Sequence[Any], constants: list[Any], paths: Mapping[str, str]) -> Place:
    """Where a wire source is during a run; a constant is read and added to ``constants``."""
    kind = source[0]
    if kind == "input":
        return _INPUTS, int(source[1])
    if kind == "segment":
        return _FIRST_SEGMENT + int(source[1]), int(source[2])
    constants.append(read_array({"blob": source[1], "dtype": source[2], "shape": source[3]}, paths))
    return _CONSTANTS, len(constants) - 1
