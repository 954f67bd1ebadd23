"""The final: the fastest found, the runner-up, the single platforms and the runtime's own default, interleaved.

What a search found was measured minutes apart and is the luckiest of many; the answer is decided on new runs that
share the same minutes (A B A B), by the rule of :mod:`edgeplace.measure.decision`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgeplace.measure.decision import (
    DEFAULT_RUNS_PER_ROUND,
    Verdict,
    final_rounds,
    pick_winner,
)
from edgeplace.measure.measurement import Agreement, Failure
from edgeplace.measure.statistics import median_interval, round_medians
from edgeplace.measure.workbench import Sample, Workbench
from edgeplace.placement.plan import Plan

MOST_FINAL_S = 60.0
"""A final of slow plans takes about this long at most, and at least the rounds that a decision needs."""


@dataclass(frozen=True)
class Entrant:
    """A plan in the final.

    Attributes:
        name: What the tables call it.
        known_ms: Its median as measured before the final.
        original: It is the model file as the user gave it (the runtime's default), not a cut.
        competes: It may win. A default takes part to be compared with, and wins nothing.
        agreement: How far a default's outputs are from the reference (the others' are in their measurements).
        wrong: Why a default's outputs are not acceptable, empty when they are.
        is_single: One platform has everything.
    """

    name: str
    plan: Plan
    known_ms: float
    is_single: bool = False
    original: bool = False
    competes: bool = True
    agreement: Agreement | None = None
    wrong: str = ""


@dataclass(frozen=True)
class FinalResult:
    """Times of everyone in the final, and the verdict.

    ``verdict`` is ``None`` when only one plan could compete. Intervals are of the median over the rounds; ``rounds_ms``
    has every run: name -> ``[round][run]``.
    """

    p50_ms: Mapping[str, float]
    ci95_ms: Mapping[str, tuple[float, float]]
    verdict: Verdict | None
    rounds: int
    failures: Mapping[str, Failure]
    rounds_ms: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)


def run_final(
    workbench: Workbench,
    entrants: Sequence[Entrant],
    sample: Sample,
    *,
    rounds: int | None = None,
    runs_per_round: int = DEFAULT_RUNS_PER_ROUND,
) -> FinalResult:
    """Run everyone interleaved and decide.

    An entrant that fails now is left out, with its failure, and the others run again.

    Args:
        rounds: Number of rounds, fixed before the first; ``None`` for as many as plans this fast need.
    """
    if rounds is None:
        known_ms = [entrant.known_ms for entrant in entrants]
        rounds = final_rounds(known_ms, runs_per_round=runs_per_round, budget_s=MOST_FINAL_S)
    failures: dict[str, Failure] = {}
    racing = list(entrants)
    while racing:
        times = workbench.interleave(
            [(entrant.plan, entrant.original) for entrant in racing],
            sample,
            rounds=rounds,
            runs_per_round=runs_per_round,
        )
        if not isinstance(times, Failure):
            break
        racing = _without_the_failed(workbench, racing, sample, times, failures)
    else:
        return FinalResult({}, {}, None, 0, failures)
    by_name = {entrant.name: rounds_ms for entrant, rounds_ms in zip(racing, times, strict=True)}
    medians = {name: round_medians(rounds_ms) for name, rounds_ms in by_name.items()}
    competing = {entrant.name: by_name[entrant.name] for entrant in racing if entrant.competes}
    singles = [entrant.name for entrant in racing if entrant.competes and entrant.is_single]
    verdict = pick_winner(competing, singles) if singles and len(competing) > 1 else None
    return FinalResult(
        {name: float(np.median(values)) for name, values in medians.items()},
        {name: median_interval(values) for name, values in medians.items()},
        verdict,
        rounds,
        failures,
        by_name,
    )


def _without_the_failed(
    workbench: Workbench,
    racing: Sequence[Entrant],
    sample: Sample,
    failure: Failure,
    failures: dict[str, Failure],
) -> list[Entrant]:
    """Those that still run alone; the others' failures are noted. At least one is left out."""
    kept = []
    for entrant in racing:
        alone = workbench.run(entrant.plan, [sample], original=entrant.original)
        if isinstance(alone, Failure):
            failures[entrant.name] = alone
        else:
            kept.append(entrant)
    if len(kept) == len(racing):  # all run alone, not together: give up the last one rather than loop
        failures[kept.pop().name] = failure
    return kept
