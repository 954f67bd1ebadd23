"""From the facts of a finished search to its delegate map and the final table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgeplace.boards import spec_from_wire
from edgeplace.controller.prepare import granularity_of
from edgeplace.controller.search import Search
from edgeplace.delegate_map import (
    MAP_FORMAT,
    AgreementInfo,
    BoardInfo,
    DelegateMap,
    MapSegment,
    ModelInfo,
    Rejection,
    Result,
    SearchInfo,
    spanning_nodes,
)
from edgeplace.measure.final import Entrant, FinalResult
from edgeplace.measure.measurement import Agreement, Measurement
from edgeplace.measure.workbench import RunOutputs
from edgeplace.placement.plan import Plan, Segment


@dataclass(frozen=True)
class _Facts:
    """A finished search and its final."""

    search: Search
    final: FinalResult
    entrants: Sequence[Entrant]


def map_from_search(
    search: Search, final: FinalResult, entrants: Sequence[Entrant]
) -> tuple[DelegateMap, list[dict[str, Any]]]:
    """The delegate map of the winner, and the rows of the final table.

    Args:
        entrants: Everyone measured for the final, also those too slow to take part.
    """
    facts = _Facts(search, final, entrants)
    winner = _winner(facts)
    measurement = _measurement_of(facts, winner.plan)
    baselines = _baselines(facts)
    delegate_map = DelegateMap(
        format=MAP_FORMAT,
        model=_model_info(search),
        board=BoardInfo(
            name=search.request.target.board,
            simulated=measurement.simulated,
            fingerprint=search.board.fingerprint(),
        ),
        platforms={
            name: spec_from_wire(search.board.platforms[name].spec)
            for name in dict.fromkeys([*_used_platforms(winner.plan), *_single_names(facts)])
        },
        segments=_segments(search, winner.plan, measurement),
        result=_result(facts, winner, measurement),
        baselines=baselines,
        search=_search_info(search),
        rejected=_rejections(search),
        platforms_left_out=dict(search.board.left_out),
    )
    return delegate_map, _rows(facts, winner, baselines)


def _winner(facts: _Facts) -> Entrant:
    """Who the map is of: the verdict's winner, or the fastest of those that compete when there was nothing to decide."""
    competing = [e for e in facts.entrants if e.competes and e.name in facts.final.p50_ms]
    if facts.final.verdict is not None:
        return next(e for e in competing if e.name == facts.final.verdict.winner)
    return min(competing, key=lambda entrant: facts.final.p50_ms[entrant.name])


def _measurement_of(facts: _Facts, plan: Plan) -> Measurement:
    return next(m for m in facts.search.bench.measured() if m.plan_id == plan.id)


def _model_info(search: Search) -> ModelInfo:
    own = search.model.subgraphs[search.graph.subgraph].tensors
    shapes = {
        name: search.graph.tensors[tensor].shape
        for name, tensor in zip(search.graph.input_names, search.graph.inputs, strict=True)
        if search.graph.tensors[tensor].shape != own[tensor].shape
    }
    return ModelInfo(
        file=search.model.name,
        sha256=search.model.sha256,
        nodes=len(search.graph.nodes),
        signature=search.graph.signature,
        shapes=shapes,
        granularity=granularity_of(search.request.granularity),
        carried=tuple(sorted(search.space.unit_graph.replicated)),
    )


def _used_platforms(plan: Plan) -> list[str]:
    return [segment.platform for segment in plan.segments]


def _single_names(facts: _Facts) -> list[str]:
    """Single platforms of the final: verify runs them again."""
    return [e.name for e in facts.entrants if e.is_single and e.name in facts.final.p50_ms]


def _segments(search: Search, plan: Plan, measurement: Measurement) -> tuple[MapSegment, ...]:
    names = search.graph.tensors
    times_ms = measurement.timing.segment_ms if measurement.timing is not None else ()
    ran = search.bench.workbench.run(plan, search.numerics.inputs.samples[:1])
    ran_on = ran.ran_on if isinstance(ran, RunOutputs) else ()

    def segment_of(segment: Segment) -> MapSegment:
        return MapSegment(
            id=segment.id,
            platform=segment.platform,
            nodes=spanning_nodes(segment.nodes, search.space.unit_graph.replicated),
            sha256=search.bench.workbench.file_of(segment).sha256,
            inputs=tuple(names[tensor].name for tensor in segment.inputs),
            outputs=tuple(names[tensor].name for tensor in segment.outputs),
            p50_ms=times_ms[segment.id] if segment.id < len(times_ms) else None,
            ran_on=ran_on[segment.id] if segment.id < len(ran_on) else "",
        )

    return tuple(segment_of(segment) for segment in plan.segments)


def _result(facts: _Facts, winner: Entrant, measurement: Measurement) -> Result:
    final, numerics = facts.final, facts.search.numerics
    speedup = _speedup(facts, winner)
    reason = _reason(facts, winner)
    return Result(
        p50_ms=final.p50_ms[winner.name],
        ci95_ms=final.ci95_ms[winner.name],
        speedup_over_best_single=speedup,
        decision=reason,
        numeric=AgreementInfo() if measurement.agreement is None else AgreementInfo.of(measurement.agreement),
        floor=AgreementInfo.of(numerics.floor.agreement),
        limit=AgreementInfo.model_validate(numerics.gate.limit.to_dict()),
        reference=str(numerics.choice.kernels)
        + (f" ({numerics.choice.why_not})" if numerics.choice.why_not else ""),
        inputs=numerics.inputs.source,
        noisy=measurement.timing.noisy if measurement.timing is not None else False,
    )


def _reason(facts: _Facts, winner: Entrant) -> str:
    """Why the winner is the answer: the final's verdict, and who was too slow to take part."""
    verdict = facts.final.verdict
    too_slow = [
        f"{entrant.name}: {entrant.known_ms / winner.known_ms:.1f} times the time in the search, not in the final"
        for entrant in facts.entrants
        if entrant.competes and entrant.name not in (*facts.final.p50_ms, *facts.final.failures)
        # A verdict speaks of the best single platform, and the others are in the table. Without one, they are the reason.
        if verdict is None or not entrant.is_single
    ]
    failed = [f"{name}: failed in the final: {failure}" for name, failure in facts.final.failures.items()]
    decided = [] if verdict is None else [verdict.reason]
    return "; ".join([*decided, *too_slow, *failed]) or "it is the only placement that works"


def _speedup(facts: _Facts, winner: Entrant) -> float | None:
    """Best single platform's time over the winner's, from the paired rounds of the final."""
    if winner.is_single:
        return 1.0
    verdict = facts.final.verdict
    if verdict is None or winner.name not in verdict.decisions:
        return None
    return 1.0 / verdict.decisions[winner.name].ratio


def _baselines(facts: _Facts) -> dict[str, float | str]:
    """Name -> median ms from the final where it was in it, else from the search, else why there is none."""
    baselines: dict[str, float | str] = {}
    by_plan = {m.plan_id: m for m in facts.search.bench.measured()}
    for name in facts.search.board.platforms:
        placement = facts.search.space.single(name)
        if name in facts.final.p50_ms:
            baselines[name] = facts.final.p50_ms[name]
        elif placement is None:
            baselines[name] = _why_not_single(facts.search, name)
        else:
            measured = by_plan.get(facts.search.bench.plan(placement).id)
            if measured is None:
                baselines[name] = "not measured"
            elif measured.timing is not None:
                baselines[name] = measured.timing.p50_ms
            else:
                baselines[name] = str(measured.failure)
    for entrant in facts.entrants:
        if not entrant.competes:
            ms = facts.final.p50_ms.get(entrant.name, entrant.known_ms)
            baselines[entrant.name] = (
                f"wrong_output: {entrant.wrong} (in {ms:.4g} ms)" if entrant.wrong else ms
            )
    return baselines


def _why_not_single(search: Search, platform: str) -> str:
    trials = [
        (unit, search.support.trials[unit.id, platform])
        for unit in search.space.unit_graph.units
        if platform not in search.space.allowed[unit.id]
    ]
    refused = [(unit, trial.failure) for unit, trial in trials if trial.failure is not None]
    if not refused:
        return f"pins and bans keep {len(trials)} units off it"
    unit, failure = refused[0]
    more = f" and {len(refused) - 1} more units" if len(refused) > 1 else ""
    return f"{failure.kind}: unit {unit.id} ({unit.name}){more}"


def _search_info(search: Search) -> SearchInfo:
    measured = [m for _, m in search.optimizer.results]
    return SearchInfo(
        method=search.optimizer.name,
        threshold=search.request.threshold,
        placements=search.space.size,
        measured=len(measured),
        failed=sum(m.failure is not None for m in measured),
        seed=search.request.seed,
        budget=search.optimizer.budget,
        finished_by=search.finished_by,
        pins=search.request.pins,
        bans=search.request.bans,
    )


def _rejections(search: Search) -> tuple[Rejection, ...]:
    """What was tried alone and refused, failed or disagreed: single nodes where a bisect found them, else units."""
    rejections: list[Rejection] = []
    carried = search.space.unit_graph.replicated
    seen: set[tuple[tuple[int, ...], str]] = set()

    def add(
        nodes: Sequence[int], platform: str, kind: str, message: str, agreement: Agreement | None
    ) -> None:
        key = (tuple(nodes), platform)
        if key not in seen:
            seen.add(key)
            rejections.append(
                Rejection(
                    nodes=spanning_nodes(nodes, carried),
                    platform=platform,
                    failure=kind,
                    message=message,
                    numeric=None if agreement is None else AgreementInfo.of(agreement),
                )
            )

    for trial in search.support.trials.values():
        if trial.failure is not None:
            add(trial.nodes, trial.platform, trial.failure.kind, trial.failure.message, trial.agreement)
    for (node, platform), failure in search.support.node_failures.items():
        add((node,), platform, failure.kind, failure.message, None)
    for culprit in search.bench.culprits:
        add(culprit.nodes, culprit.platform, "wrong_output", culprit.reason, culprit.agreement)
    return tuple(rejections)


def _rows(facts: _Facts, winner: Entrant, baselines: Mapping[str, float | str]) -> list[dict[str, Any]]:
    """One row per single platform, default and contender, the chosen one last."""
    plans = {entrant.name: entrant for entrant in facts.entrants}
    for name in facts.search.board.platforms:
        placement = facts.search.space.single(name)
        if placement is not None and name not in plans:
            plans[name] = Entrant(name, facts.search.bench.plan(placement), 0.0, is_single=True)
    rows = []
    for name, value in baselines.items():
        rows.append(_row(facts, name, plans.get(name), value, winner))
    rows += [
        _row(facts, entrant.name, entrant, facts.final.p50_ms.get(entrant.name, entrant.known_ms), winner)
        for entrant in facts.entrants
        if entrant.competes and not entrant.is_single and entrant.name not in facts.final.failures
    ]
    return rows


def _row(
    facts: _Facts, name: str, entrant: Entrant | None, value: float | str, winner: Entrant
) -> dict[str, Any]:
    measured = None
    if entrant is not None and entrant.competes:
        measured = next((m for m in facts.search.bench.measured() if m.plan_id == entrant.plan.id), None)
    agreement = (
        measured.agreement if measured is not None else entrant.agreement if entrant is not None else None
    )
    interval = facts.final.ci95_ms.get(name)
    if interval is None and measured is not None and measured.timing is not None:
        interval = measured.timing.ci95_ms
    return {
        "name": name,
        "kind": _kind(entrant),
        "chosen": name == winner.name,
        "p50_ms": value if isinstance(value, float) else None,
        "ci95_ms": None if interval is None else list(interval),
        "failure": None if isinstance(value, float) else value,
        "in_final": name in facts.final.p50_ms,
        "speedup": _ratio_to_best_single(facts, value),
        "agreement": None if agreement is None else AgreementInfo.of(agreement).model_dump(exclude_none=True),
        "wrong": entrant.wrong if entrant is not None else "",
        "segments": None if entrant is None else len(entrant.plan.segments),
        "transfers": None if entrant is None else entrant.plan.transfers,
    }


def _kind(entrant: Entrant | None) -> str:
    if entrant is None or entrant.is_single:
        return "single platform"
    return "mixed" if entrant.competes else "runtime default"


def _ratio_to_best_single(facts: _Facts, value: float | str) -> float | None:
    singles = [facts.final.p50_ms[name] for name in _single_names(facts) if name in facts.final.p50_ms]
    return min(singles) / value if singles and isinstance(value, float) and value > 0 else None
