"""Why each part of a delegate map is where it is, from what the map records; in lines for people."""

from __future__ import annotations

from edgeplace.delegate_map.compare import BEYOND_LIMIT, beyond_limit, describe_agreement
from edgeplace.delegate_map.model import DelegateMap, MapSegment, Rejection
from edgeplace.graph.contract import format_ids


def explain_map(delegate_map: DelegateMap) -> list[str]:
    """The answer and its grounds: the decision, each segment, what disagreed, what was left out."""
    return [
        *_decision(delegate_map),
        *(line for segment in delegate_map.segments for line in _segment(delegate_map, segment)),
        *_disagreements(delegate_map),
        *(f"left out: {name}: {why}" for name, why in delegate_map.platforms_left_out.items()),
    ]


def _decision(delegate_map: DelegateMap) -> list[str]:
    model, result, search = delegate_map.model, delegate_map.result, delegate_map.search
    lines = [f"{model.file} on {delegate_map.board.name}: {_summary(delegate_map)}"]
    if search is not None:
        bound = "below" if search.placements < search.threshold else "not below"
        lines.append(
            f"search: {search.placements} placements possible, {bound} the threshold {search.threshold}; method"
            f" {search.method}, {search.measured} measured, {search.failed} failed"
            + (f", ended by: {search.finished_by}" if search.finished_by else "")
        )
    if result is not None:
        if result.decision:
            lines.append(f"decision: {result.decision}")
        against = f" against {result.reference}" if result.reference else ""
        on = f" on {result.inputs}" if result.inputs else ""
        lines.append(f"outputs: {describe_agreement(result.numeric)}{against}{on}")
        if result.limit.snr_db is not None or result.limit.cosine is not None:
            floor = describe_agreement(result.floor)
            lines.append(
                f"limit: {describe_agreement(result.limit)} (correct kernels among themselves: {floor})"
            )
        if beyond_limit(result.numeric, result.limit):
            lines.append(f"the outputs are {BEYOND_LIMIT}")
    for name, value in delegate_map.baselines.items():
        lines.append(f"compared with {name}: {value if isinstance(value, str) else f'{value:g} ms'}")
    return lines


def _summary(delegate_map: DelegateMap) -> str:
    result = delegate_map.result
    shape = f"{len(delegate_map.segments)} segment{'s' if len(delegate_map.segments) != 1 else ''}"
    if result is None:
        return f"{shape}, not measured"
    gain = result.speedup_over_best_single
    told = f", {gain:.2f}x as fast as the best single platform" if gain is not None and gain != 1 else ""
    noisy = ", noisy" if result.noisy else ""
    simulated = ", SIMULATED" if delegate_map.board.simulated else ""
    return f"{shape}, {result.p50_ms:g} ms{told}{noisy}{simulated}"


def _segment(delegate_map: DelegateMap, segment: MapSegment) -> list[str]:
    carried = frozenset(delegate_map.model.carried)
    own = frozenset(segment.nodes) - carried
    time = "" if segment.p50_ms is None else f", {segment.p50_ms:g} ms"
    ran = f" (ran on {segment.ran_on})" if segment.ran_on else ""
    lines = [f"segment {segment.id}: nodes {format_ids(own)} on {segment.platform}{time}{ran}"]
    tried = [*delegate_map.platforms, *(rejection.platform for rejection in delegate_map.rejected)]
    for platform in dict.fromkeys(tried):
        if platform == segment.platform or platform in delegate_map.platforms_left_out:
            continue
        stopped = [r for r in delegate_map.rejected if r.platform == platform and own & frozenset(r.nodes)]
        if stopped:
            lines += [f"  not on {platform}: {_reason(rejection)}" for rejection in stopped]
        elif platform in delegate_map.platforms:
            lines.append(f"  {platform} could run it too; the total time decided")
    return lines


def _reason(rejection: Rejection) -> str:
    which = f"{'node' if len(rejection.nodes) == 1 else 'nodes'} {format_ids(rejection.nodes)}"
    detail = f": {rejection.message}" if rejection.message else ""
    return f"{which} {rejection.failure}{detail}"


def _disagreements(delegate_map: DelegateMap) -> list[str]:
    """Which nodes gave wrong outputs where, and by how much."""
    lines = []
    for rejection in delegate_map.rejected:
        if rejection.failure == "wrong_output":
            much = (
                describe_agreement(rejection.numeric) if rejection.numeric is not None else rejection.message
            )
            which = f"{'node' if len(rejection.nodes) == 1 else 'nodes'} {format_ids(rejection.nodes)}"
            lines.append(f"disagreed: {which} on {rejection.platform}, excluded there: {much}")
    return lines
