"""What differs between two delegate maps of one model, in lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgeplace.delegate_map.model import AgreementInfo, DelegateMap, Result
from edgeplace.graph.contract import format_ids

_ABSENT = "absent"


def diff_maps(first: DelegateMap, second: DelegateMap) -> list[str]:
    """The differences that matter, ``first -> second``; empty when there are none.

    Assignments come by node, whatever segments they are in; hashes of segments are left out, since they follow.
    """
    return [
        *_values("model", first.model, second.model),
        *_values("board", first.board, second.board),
        *_assignments(first, second),
        *_platforms(first, second),
        *_results(first.result, second.result),
        *_mapping("baseline", first.baselines, second.baselines),
        *_search(first, second),
        *_mapping("left out", first.platforms_left_out, second.platforms_left_out),
    ]


def _assignments(first: DelegateMap, second: DelegateMap) -> list[str]:
    """Runs of nodes that moved the same way, and a changed division of the same assignment."""
    before, after = first.platform_of_nodes, second.platform_of_nodes
    moved: dict[tuple[str, str], list[int]] = {}
    for node in sorted(before.keys() | after.keys()):
        change = (before.get(node, "nowhere"), after.get(node, "nowhere"))
        if change[0] != change[1]:
            moved.setdefault(change, []).append(node)
    lines = [
        f"{'node' if len(nodes) == 1 else 'nodes'} {format_ids(nodes)}: {old} -> {new}"
        for (old, new), nodes in moved.items()
    ]
    if not moved and _division(first) != _division(second):
        lines.append("the same nodes on the same platforms, divided into other segments")
    if len(first.segments) != len(second.segments):
        lines.append(f"segments: {len(first.segments)} -> {len(second.segments)}")
    return lines


def _division(delegate_map: DelegateMap) -> list[frozenset[int]]:
    carried = frozenset(delegate_map.model.carried)
    return [frozenset(segment.nodes) - carried for segment in delegate_map.segments]


def _platforms(first: DelegateMap, second: DelegateMap) -> list[str]:
    lines = [
        f"platform {name}: only in the first" for name in first.platforms if name not in second.platforms
    ]
    lines += [
        f"platform {name}: only in the second" for name in second.platforms if name not in first.platforms
    ]
    for name, old in first.platforms.items():
        if name in second.platforms:
            lines += _values(f"platform {name}", old, second.platforms[name])
    return lines


def _results(first: Result | None, second: Result | None) -> list[str]:
    if first is None or second is None:
        return [] if first is second else ["result: only in the " + ("first" if second is None else "second")]
    lines = []
    if first.p50_ms != second.p50_ms:
        lines.append(f"p50: {first.p50_ms:g} ms -> {second.p50_ms:g} ms ({_speed(first, second)})")
    for field in ("numeric", "floor", "limit"):
        lines += _values(field, getattr(first, field), getattr(second, field))
    for field in ("speedup_over_best_single", "reference", "inputs", "decision"):
        lines += _change(field.replace("_", " "), getattr(first, field), getattr(second, field))
    return lines


def _speed(first: Result, second: Result) -> str:
    """How the medians relate, and whether the intervals leave any doubt."""
    if not first.p50_ms or not second.p50_ms:
        return "no ratio"
    ratio = second.p50_ms / first.p50_ms
    words = f"{ratio:.2f}x the time" if ratio > 1 else f"{1 / ratio:.2f}x as fast"
    apart = first.ci95_ms[1] < second.ci95_ms[0] or second.ci95_ms[1] < first.ci95_ms[0]
    return words if apart else f"{words}, but the intervals overlap"


def _search(first: DelegateMap, second: DelegateMap) -> list[str]:
    if first.search is None or second.search is None:
        return [] if first.search is second.search else ["search: only in one of them"]
    return _values("search", first.search, second.search)


def _values(title: str, first: Any, second: Any) -> list[str]:
    """Fields of two models of one kind that differ; mappings are compared key by key."""
    lines: list[str] = []
    for field in type(first).model_fields:
        old, new = getattr(first, field), getattr(second, field)
        if isinstance(old, dict):
            lines += _mapping(f"{title}: {field}", old, new)
        else:
            lines += _change(f"{title}: {field}", old, new)
    return lines


def _mapping(title: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for key in dict.fromkeys([*first, *second]):
        lines += _change(f"{title} {key}", first.get(key), second.get(key))
    return lines


def _change(title: str, old: Any, new: Any) -> list[str]:
    return [] if old == new else [f"{title}: {_show(old)} -> {_show(new)}"]


def _show(value: Any) -> str:
    if value is None or value == "":
        return _ABSENT
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_show(item) for item in value)}]"
    return str(value)


BEYOND_LIMIT = (
    "beyond the limit; the whole model on the CPU is taken as right all the same: check it on your task"
)


def beyond_limit(agreement: AgreementInfo, limit: AgreementInfo) -> bool:
    """Whether outputs are further from the reference than the limit, as only the whole model on the CPU may be."""
    at_least = ("snr_db", "cosine", "equal_share", "metric")
    pairs = [(getattr(agreement, name), getattr(limit, name)) for name in at_least]
    if agreement.max_abs is not None and limit.max_abs is not None:
        pairs.append((limit.max_abs, agreement.max_abs))
    return any(value is not None and least is not None and value < least for value, least in pairs)


def describe_agreement(agreement: AgreementInfo) -> str:
    """``SNR 61.2 dB, cosine 0.99999, max abs 0.0012``; ``equal`` when nothing differs."""
    if agreement.has_nan:
        return "NaN or Inf in the outputs"
    parts = []
    differs = agreement.equal_share is not None and agreement.equal_share < 1
    if agreement.max_abs == 0 and not differs:
        parts.append("equal")
    elif agreement.max_abs != 0:  # zero beside unequal elements: class numbers, which have no distance
        if agreement.snr_db is not None:
            parts.append(f"SNR {agreement.snr_db:.1f} dB")
        if agreement.cosine is not None:
            parts.append(f"cosine {agreement.cosine:.6g}")
        if agreement.max_abs is not None:
            parts.append(f"max abs {agreement.max_abs:.4g}")
    if agreement.steps:
        parts.append(f"{agreement.steps:g} quantization steps")
    if differs:
        parts.append(f"{agreement.equal_share:.1%} equal elements")
    if agreement.metric is not None:
        parts.append(f"metric {agreement.metric:g}")
    return ", ".join(parts) or "not compared"
