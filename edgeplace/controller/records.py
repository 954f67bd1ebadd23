"""Between the bench, which knows no database, and the store, which knows no bench."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial

from edgeplace.controller.requests import Observer, OptimizeRequest, SearchInterrupted
from edgeplace.errors import EdgePlaceError, StoreError
from edgeplace.graph.graph import Graph
from edgeplace.measure.board import LiveBoard
from edgeplace.measure.final import FinalResult
from edgeplace.measure.inputs import InputSet
from edgeplace.measure.measurement import Agreement, Failure, Measurement, Timing
from edgeplace.measure.numerics import Numerics
from edgeplace.measure.statistics import timing_from
from edgeplace.measure.support import Trial
from edgeplace.placement.plan import Placement
from edgeplace.store import RecordKind, Session, Store, Support, session_key


@contextlib.contextmanager
def search_session(
    store: Store,
    request: OptimizeRequest,
    board: LiveBoard,
    graph: Graph,
    inputs: InputSet,
    watch: Observer,
) -> Iterator[SessionRecorder]:
    """The records of one search while the block runs. Whatever ends it, every measurement is kept.

    Ctrl-C says how to go on. An explained error gives up the run in flight, so that it does not count against its plan.

    Raises:
        SearchInterrupted: Ctrl-C.
        StoreError: There is nothing to resume, or another process works on it.
    """
    facts = {
        "model": graph.model_sha256,
        "signature": graph.signature,
        "shapes": [list(graph.tensors[t].shape) for t in graph.inputs],
        "board": board.fingerprint(),
        "platforms": {name: platform.identity for name, platform in board.platforms.items()},
        "granularity": request.granularity,
        "pins": sorted(request.pins),
        "bans": sorted(request.bans),
        "inputs": inputs.sha256,
        "limits": [request.min_cosine, request.min_snr_db, request.metric, request.metric_min],
        "seed": request.seed,
    }
    key = session_key(facts)
    last = store.last_session(key)
    if not request.resume and last is not None and last.finished_at is None and last.measured:
        watch.note(
            f"an unfinished search of this model with {last.measured} measurements exists; --resume goes on with it"
        )
    recorder = SessionRecorder(
        store.session(key, {"model_file": graph.model_name, **facts}, resume=request.resume)
    )
    try:
        yield recorder
    except KeyboardInterrupt:
        recorder.give_up("interrupted")
        raise SearchInterrupted(
            f"interrupted; {recorder.measured} measurements are kept",
            hint="the same command with --resume goes on with them",
        ) from None
    except (
        EdgePlaceError
    ) as error:  # the link, the agent, the disk: no strike against the plan that was running
        recorder.give_up(error.message)
        raise


class SessionRecorder:
    """Measurements of one search session: looked up by plan, written with START and END.

    Attributes:
        measured: How many are on the disk.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known = {m.plan_id: m for m in session.measurements()}
        self._in_flight: int | None = None
        self.measured = len(self._known)

    def lookup(self, plan_id: str) -> Measurement | None:
        """What this session recorded of a plan; a run that was lost or given up left nothing."""
        return self._known.get(plan_id)

    @property
    def strikes(self) -> Mapping[str, int]:
        """Plan id -> how often the host died while it ran."""
        return self._session.strikes()

    def start(self, plan_id: str, placement: Placement) -> int:
        """Write the START of a run; it is on the disk when this returns."""
        self._in_flight = self._session.start(plan_id, placement.id, platforms=placement.platforms)
        return self._in_flight

    def end(self, token: int, measurement: Measurement) -> None:
        """Write the END of a run."""
        self._session.end(token, measurement)
        self._in_flight = None
        self.measured += 1

    def keep(
        self, kind: RecordKind, plan_id: str, name: str, run: Callable[[], Timing | Failure]
    ) -> Timing | Failure:
        """Do a run that is no placement of the search, between its own START and END.

        Args:
            kind: Why it runs.
            name: What the tables call it.
        """
        self._in_flight = self._session.start(plan_id, name, kind)
        found = run()
        if isinstance(found, Failure):
            kept = Measurement(name, plan_id, failure=found)
        else:
            kept = Measurement(name, plan_id, timing=found)
        self._session.end(self._in_flight, kept)
        self._in_flight = None
        return found

    def keep_final(self, run: Callable[[], FinalResult], plan_ids: Mapping[str, str]) -> FinalResult:
        """Hold the final between a START and an END, then keep the raw runs of everyone in it.

        Args:
            plan_ids: Name -> plan id of everyone in it.
        """
        self._in_flight = self._session.start(" ".join(plan_ids.values()), "final", "interleave")
        final = run()
        self._session.end(self._in_flight, None)
        self._in_flight = None
        for name, rounds_ms in final.rounds_ms.items():
            times_ms = [time_ms for runs_ms in rounds_ms for time_ms in runs_ms]
            self.keep("interleave", plan_ids[name], name, partial(timing_from, times_ms))
        return final

    def give_up(self, reason: str) -> None:
        """The run in flight, if there is one, was stopped for a reason outside of it; it says nothing about its plan."""
        if self._in_flight is not None:
            with contextlib.suppress(StoreError):  # the reason may be the database itself
                self._session.give_up(self._in_flight, reason)
            self._in_flight = None

    def finish(self, map_text: str) -> None:
        """Write that the search is over, and the delegate map that came of it."""
        self._session.finish(map_text)


class StoredTrials:
    """Trials of units, remembered across searches by segment, platform, runtime, inputs and limits."""

    def __init__(self, store: Store, board: LiveBoard, numerics: Numerics) -> None:
        self._store = store
        self._board = board
        context = [
            board.fingerprint(),
            numerics.inputs.sha256,
            numerics.choice.to_dict(),
            numerics.gate.limit.to_dict(),
        ]
        self._context = hashlib.sha256(json.dumps(context, sort_keys=True, default=str).encode()).hexdigest()

    def get(self, segment_sha256: str, platform: str) -> Trial | None:
        """What an earlier search found."""
        found = self._store.support_get(segment_sha256, self._platform_hash(platform), self._context)
        if found is None:
            return None
        agreement = found.details.get("agreement")
        return Trial(
            (),
            platform,
            found.failure,
            found.time_ms,
            Agreement(**agreement) if isinstance(agreement, dict) else None,
        )

    def put(self, segment_sha256: str, platform: str, trial: Trial) -> None:
        """Remember what this search found."""
        details = {"agreement": None if trial.agreement is None else asdict(trial.agreement)}
        self._store.support_put(
            segment_sha256,
            self._platform_hash(platform),
            self._context,
            Support(trial.failure, trial.time_ms, details),
        )

    def _platform_hash(self, platform: str) -> str:
        text = json.dumps(self._board.platforms[platform].identity, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()
