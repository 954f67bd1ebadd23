"""Runs that measure nothing: models, maps, boards and schemas looked at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeplace import boards
from edgeplace.atomic import folder_atomic
from edgeplace.boards import BoardProfile
from edgeplace.controller.prepare import board_of, granularity_of, graph_here, graph_of_map
from edgeplace.controller.requests import Target
from edgeplace.controller.verify import model_of_map
from edgeplace.delegate_map import DelegateMap, load_map, plan_from_map
from edgeplace.delegate_map import diff_maps as differences
from edgeplace.delegate_map import explain_map as explanations
from edgeplace.errors import InputError
from edgeplace.graph.contract import contract, format_ids
from edgeplace.graph.inspect import inspect_model
from edgeplace.measure.board import LiveBoard, bring_up
from edgeplace.placement.cut_points import cut_at, cut_in_parts
from edgeplace.placement.segments import SegmentCutter
from edgeplace.registry import nearest_name_hint
from edgeplace.schema import FrozenModel, json_schema
from edgeplace.tflite.reader import Model

SCHEMAS: dict[str, type[FrozenModel]] = {"delegate-map": DelegateMap, "board": BoardProfile}


def inspect(
    model_path: Path, *, signature: str = "", shapes: Sequence[str] = (), granularity: str = "unit"
) -> dict[str, Any]:
    """Facts about a model: operators, tensors, units, MACs, what may not be separated and why."""
    fineness = granularity_of(granularity)
    model = Model.load(model_path)
    graph = graph_here(model, signature, shapes)
    return inspect_model(model, graph, contract(graph, fineness))


def cut(
    model_path: Path,
    out: Path,
    *,
    at: Sequence[str] = (),
    parts: int | None = None,
    signature: str = "",
    shapes: Sequence[str] = (),
) -> dict[str, Any]:
    """Cut a model and write the segments with a ``plan.json`` that says how they connect.

    Raises:
        InputError: Neither cut points nor a number of parts, or both; a point that is not in the model.
        OutputError: The folder cannot be written.
    """
    if bool(at) == (parts is not None):
        raise InputError(
            "say where to cut: either --at (an operator number or a tensor name) or --parts N",
            hint=f"edgeplace cut {model_path} --parts 2 -o {out}",
        )
    model = Model.load(model_path)
    graph = graph_here(model, signature, shapes)
    unit_graph = contract(graph, "op")
    result = cut_in_parts(unit_graph, parts) if parts is not None else cut_at(unit_graph, at)
    cutter = SegmentCutter(model, unit_graph)
    names = graph.tensors
    segments: list[dict[str, Any]] = []
    plan: dict[str, Any] = {
        "model": {"file": model.name, "sha256": model.sha256},
        "inputs": [names[tensor].name for tensor in graph.inputs],
        "segments": segments,
        "outputs": [
            {"name": names[tensor].name, "from": [source.kind, source.index, source.output]}
            for tensor, source in zip(graph.outputs, result.plan.outputs, strict=True)
        ],
        "notes": list(result.notes),
    }
    with folder_atomic(out) as scratch:
        for segment in result.plan.segments:
            file = cutter.file(segment)
            name = f"segment_{segment.id}.tflite"
            with (scratch / name).open("wb") as stream:
                stream.writelines(file.pieces())
            segments.append(
                {
                    "file": str(out / name),
                    "sha256": file.sha256,
                    "size_bytes": file.size_bytes,
                    "nodes": format_ids(segment.nodes),
                    "inputs": [
                        {"name": names[tensor].name, "from": [source.kind, source.index, source.output]}
                        for tensor, source in zip(segment.inputs, segment.sources, strict=True)
                    ],
                    "outputs": [names[tensor].name for tensor in segment.outputs],
                }
            )
        written = {**plan, "segments": [{**s, "file": Path(s["file"]).name} for s in segments]}
        (scratch / "plan.json").write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    return plan


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of file.

    Raises:
        InputError: There is no such kind.
    """
    if kind not in SCHEMAS:
        raise InputError(f"there is no schema '{kind}'", hint=nearest_name_hint(kind, SCHEMAS))
    return json_schema(SCHEMAS[kind])


def list_boards(boards_dirs: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """Every board profile that can be named."""
    return [
        {
            "name": entry.name,
            "title": entry.profile.title if entry.profile is not None else "",
            "address": entry.profile.address if entry.profile is not None else "",
            "platforms": list(entry.profile.platforms) if entry.profile is not None else [],
            "file": str(entry.path),
            "problem": entry.problem,
        }
        for entry in boards.list_boards(tuple(boards_dirs))
    ]


def probe_board(target: Target) -> dict[str, Any]:
    """Start the agent on a board and try its platforms: those that are there first, then the others with the reason.

    Raises:
        LinkError: The board cannot be reached.
        AgentError: The agent does not start.
        NoFeasiblePlacementError: None of the platforms is there.
    """
    with bring_up(board_of(target)) as board:
        return {
            "board": board.profile.name,
            "address": board.profile.address,
            "fingerprint": board.fingerprint(),
            "platforms": [_platform_facts(board, name) for name in (*board.platforms, *board.left_out)],
        }


def _platform_facts(board: LiveBoard, name: str) -> dict[str, Any]:
    profile, live = board.profile.platforms[name], board.platforms.get(name)
    return {
        "name": name,
        "kind": profile.kind,
        "available": live is not None,
        "reason": board.left_out.get(name, ""),
        "verified": profile.verified,
        "details": {} if live is None else dict(live.details),
    }


def map_facts(path: Path) -> dict[str, Any]:
    """A delegate map as plain data."""
    return {"map_file": str(path), "map": load_map(path).model_dump(mode="json", exclude_none=True)}


def explain_map(path: Path) -> list[str]:
    """Why each part is where it is, in lines."""
    return explanations(load_map(path))


def diff_maps(first: Path, second: Path) -> list[str]:
    """What differs between two maps, in lines."""
    return differences(load_map(first), load_map(second))


def validate_map(path: Path, model_path: Path | None) -> None:
    """Check a map against the schema and its model.

    Raises:
        ProfileError: What is wrong, with file and line.
        InputError: The model is not to be found.
    """
    delegate_map = load_map(path)
    model = Model.load(model_of_map(path, delegate_map, model_path))
    plan_from_map(delegate_map, graph_of_map(delegate_map, model))
