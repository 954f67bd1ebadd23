"""Delegate maps as files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from edgeplace.atomic import write_atomic
from edgeplace.delegate_map.model import DelegateMap
from edgeplace.graph.graph import Graph
from edgeplace.placement.plan import Plan
from edgeplace.schema import dump_model, load_model, parse_model

COMMENT = """\
Which node of the model runs on which platform of the board. A person may move nodes from one segment to another:
segments stand in execution order and hold every node once. Then `edgeplace verify` tells how fast and right it is."""


def load_map(path: Path) -> DelegateMap:
    """Read a delegate map.

    Raises:
        ProfileError: It cannot be read or does not fit the schema; all problems, each with its line. Whether it fits
            its model is what ``validate_map`` tells.
    """
    return load_model(DelegateMap, path)


def parse_map(text: str, source: str) -> DelegateMap:
    """Read a delegate map from text; ``source`` is what messages call it. Raises like :func:`load_map`."""
    return parse_model(DelegateMap, text, source)


def dump_map(delegate_map: DelegateMap) -> str:
    """The map as canonical YAML: the same map always gives the same text."""
    return dump_model(delegate_map, COMMENT)


def save_map(delegate_map: DelegateMap, path: Path) -> None:
    """Write the map; what was at ``path`` before is replaced at once or not at all.

    Raises:
        OutputError: It cannot be written.
    """
    write_atomic(path, [dump_map(delegate_map).encode()])


def spanning_nodes(nodes: Sequence[int], carried: Collection[int]) -> tuple[int, ...]:
    """Node numbers as a map lists them: ascending, with the carried nodes that lie in their gaps.

    ``1, 3, 5`` with 2 and 4 carried reads ``1-5`` in the file.
    """
    listed: list[int] = []
    for node in sorted(nodes):
        gap = range(listed[-1] + 1, node) if listed else range(0)
        if all(between in carried for between in gap):
            listed.extend(gap)
        listed.append(node)
    return tuple(listed)


def with_segment_files(
    delegate_map: DelegateMap, plan: Plan, graph: Graph, sha256s: Sequence[str]
) -> DelegateMap:
    """The map with the hash, inputs and outputs of its segments as they were cut.

    A segment whose hash is another than the map says was changed by hand: what was measured no longer holds, and is
    left out.

    Args:
        plan: The map's plan; its segments are the map's, in order.
        sha256s: Hash of each segment's file.
    """
    segments = []
    for entry, segment, sha256 in zip(delegate_map.segments, plan.segments, sha256s, strict=True):
        changes: dict[str, object] = {
            "sha256": sha256,
            "inputs": tuple(graph.tensors[tensor].name for tensor in segment.inputs),
            "outputs": tuple(graph.tensors[tensor].name for tensor in segment.outputs),
        }
        if entry.sha256 != sha256:
            changes |= {"p50_ms": None, "ran_on": ""}
        segments.append(entry.model_copy(update=changes))
    changed = any(old.sha256 != new.sha256 for old, new in zip(delegate_map.segments, segments, strict=True))
    update: dict[str, object] = {"segments": tuple(segments)}
    return delegate_map.model_copy(update={**update, "result": None} if changed else update)
