"""Who meets in the final: the best mixes, every single platform, and what the runtimes do by themselves."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from edgeplace.controller.prepare import runs_as_given, timing_plan
from edgeplace.controller.requests import Observer
from edgeplace.controller.search import Search
from edgeplace.errors import NoFeasiblePlacementError
from edgeplace.measure.board import LiveBoard
from edgeplace.measure.final import Entrant, FinalResult, run_final
from edgeplace.measure.measurement import Failure
from edgeplace.measure.workbench import whole_plan
from edgeplace.optimizers.base import Optimizer

LOG = logging.getLogger(__name__)

DEFAULT_PLATFORM = "runtime-default"
"""What the runtime does with the file as given: all of it on the CPU's default delegate."""

MIXES_IN_FINAL = 2
"""The fastest mix of platforms, and the next."""
HOPELESS = 3.0
"""What is slower than the fastest by this factor takes no part in the final, the best single platform excepted."""


def hold_final(search: Search, watch: Observer) -> tuple[FinalResult, list[Entrant]]:
    """The final, interleaved, and everyone who was measured for it, those too slow to take part last.

    Raises:
        NoFeasiblePlacementError: Nothing was found that works, or none of it ran in the final.
    """
    racing, too_slow = _entrants(search)
    watch.stage("final", 1)
    watch.advance(f"{len(racing)} plans interleaved", 0)
    sample = search.numerics.inputs.samples[0]
    final = search.records.keep_final(
        partial(run_final, search.workbench, racing, sample, rounds=search.request.rounds),
        {entrant.name: entrant.plan.id for entrant in racing},
    )
    if not any(entrant.name in final.p50_ms for entrant in racing if entrant.competes):
        raise NoFeasiblePlacementError(
            "no placement ran in the final: " + "; ".join(f"{n}: {f}" for n, f in final.failures.items()),
            hint="edgeplace boards probe shows what is still there; the same command with --resume goes on",
        )
    return final, [*racing, *too_slow]


def default_platform_spec(board: LiveBoard) -> dict[str, Any]:
    """:data:`DEFAULT_PLATFORM` on the wire: no options, so everything is as the runtime chooses."""
    return {"kind": "cpu", "loader": "interpreter", "runtime": board.cpu_runtime, "options": {}}


def _entrants(search: Search) -> tuple[list[Entrant], list[Entrant]]:
    """Who takes part in the final, and who is measured but too slow for it."""
    contenders = [*_singles(search), *_mixes(search)]
    if not contenders:
        raise NoFeasiblePlacementError(
            "no placement runs and gives right outputs: " + "; ".join(_failures_in_words(search.optimizer)),
            hint="edgeplace inspect shows the units; --granularity op cuts finer, --min-snr loosens the bound",
        )
    return _split_by_speed([*contenders, *_defaults(search)])


def _split_by_speed(entrants: Sequence[Entrant]) -> tuple[list[Entrant], list[Entrant]]:
    """Those fast enough for the final, and the others.

    The best single platform always takes part: a mix has to beat it there, and its gain is told against it.
    """
    limit_ms = HOPELESS * min(entrant.known_ms for entrant in entrants if entrant.competes)
    best_single = min((e for e in entrants if e.is_single), key=lambda e: e.known_ms, default=None)
    racing = [entrant for entrant in entrants if entrant.known_ms <= limit_ms or entrant is best_single]
    return racing, [entrant for entrant in entrants if entrant not in racing]


def _singles(search: Search) -> list[Entrant]:
    """Single platforms that work, fastest first; those the optimizer did not get to are measured now."""
    singles: list[Entrant] = []
    for name in search.space.platforms:
        placement = search.space.single(name)
        if placement is None:
            continue
        measurement = search.bench.measure(placement)
        if measurement.p50_ms is not None:
            plan = search.bench.plan(placement)
            singles.append(Entrant(name, plan, measurement.p50_ms, is_single=True))
    return sorted(singles, key=lambda entrant: (entrant.known_ms, entrant.name))


def _mixes(search: Search) -> list[Entrant]:
    """The fastest plans over several platforms."""
    mixes: dict[str, Entrant] = {}
    for placement, p50_ms in sorted(search.optimizer.timed(), key=lambda timed: timed[1]):
        plan = search.bench.plan(placement)
        if len({segment.platform for segment in plan.segments}) > 1 and plan.id not in mixes:
            mixes[plan.id] = Entrant("next mix" if mixes else "fastest mix", plan, p50_ms)
            if len(mixes) == MIXES_IN_FINAL:
                break
    return list(mixes.values())


def _defaults(search: Search) -> list[Entrant]:
    """What the runtimes do by themselves with the whole model: the CPU default, and each accelerator with fallback."""
    specs: dict[str, Mapping[str, Any]] = {DEFAULT_PLATFORM: default_platform_spec(search.board)}
    for name, platform in search.board.platforms.items():
        if platform.profile.loader == "compiled_model" and platform.profile.kind != "cpu":
            options = {**platform.spec["options"], "fallback": True}
            specs[f"{name}+cpu default"] = {**platform.spec, "options": options}
    measured = [_measure_default(search, name, spec) for name, spec in specs.items()]
    return [entrant for entrant in measured if entrant is not None]


def _measure_default(search: Search, name: str, spec: Mapping[str, Any]) -> Entrant | None:
    """One such default, checked and timed like a placement; ``None`` when it does not run."""
    workbench, samples = search.workbench, search.numerics.inputs.samples
    original = runs_as_given(search.graph, search.model)
    workbench.add_platform(name, spec)
    plan = whole_plan(search.graph, name)
    ran = workbench.run(plan, samples, original=original)
    if isinstance(ran, Failure):
        LOG.info("default '%s' does not run: %s", name, ran)
        return None
    agreement, wrong = search.numerics.judge(ran, whole_cpu=spec["kind"] == "cpu")
    timing = search.records.keep(
        "baseline",
        plan.id,
        name,
        partial(workbench.measure, plan, samples[0], timing_plan(search.request), original=original),
    )
    if isinstance(timing, Failure):
        LOG.info("default '%s' cannot be timed: %s", name, timing)
        return None
    return Entrant(
        name, plan, timing.p50_ms, original=original, competes=False, agreement=agreement, wrong=wrong
    )


def _failures_in_words(optimizer: Optimizer) -> list[str]:
    return [str(m.failure) for _, m in optimizer.results if m.failure is not None][:3]
