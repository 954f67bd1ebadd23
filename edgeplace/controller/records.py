"""Between the bench, which knows no database, and the store, which knows no bench."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from edgeplace.measure.board import LiveBoard
from edgeplace.measure.measurement import Agreement, Measurement
from edgeplace.measure.numerics import Numerics
from edgeplace.measure.support import Trial
from edgeplace.placement.plan import Placement
from edgeplace.store import Session, Store, Support


class SessionRecorder:
    """Measurements of one search session: looked up by plan, written with START and END."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known = {m.plan_id: m for m in session.measurements()}
        self._in_flight: int | None = None
        self.measured = len(self._known)

    def lookup(self, plan_id: str) -> Measurement | None:
        """What this session recorded of a plan. A run lost with the agent is measured anew."""
        return self._known.get(plan_id)

    def start(self, plan_id: str, placement: Placement) -> int:
        """Write the START of a run; it is on the disk when this returns."""
        self._in_flight = self._session.start(plan_id, placement.id, platforms=placement.platforms)
        return self._in_flight

    def end(self, token: int, measurement: Measurement) -> None:
        """Write the END of a run."""
        self._session.end(token, measurement)
        self._in_flight = None
        self.measured += 1

    def give_up(self, reason: str) -> None:
        """The run in flight was stopped by the user; it says nothing about its plan."""
        if self._in_flight is not None:
            self._session.give_up(self._in_flight, reason)
            self._in_flight = None


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
