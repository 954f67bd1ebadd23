"""What every run begins with: the board found, the graph built, inputs read, right outputs known."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from edgeplace.boards import BoardProfile, load_board
from edgeplace.controller.requests import OptimizeRequest, Target
from edgeplace.delegate_map import DelegateMap
from edgeplace.delegate_map.model import FILE_NAME_PATTERN
from edgeplace.errors import InputError, ModelError, OutputError
from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import Granularity, contract
from edgeplace.graph.graph import Graph
from edgeplace.measure.agreement import Limit
from edgeplace.measure.board import LiveBoard, bring_up
from edgeplace.measure.inputs import InputSet, load_inputs, parse_shapes, random_inputs
from edgeplace.measure.metric import Metric
from edgeplace.measure.numerics import Numerics, OutputCache, calibrate
from edgeplace.measure.statistics import TimingPlan
from edgeplace.measure.workbench import Deadlines, Workbench
from edgeplace.placement.segments import SegmentCutter
from edgeplace.registry import nearest_name_hint
from edgeplace.tflite.original import original_file
from edgeplace.tflite.reader import Model

GRANULARITIES: dict[str, Granularity] = {"op": "op", "unit": "unit", "block": "block"}


def granularity_of(name: str) -> Granularity:
    """The granularity of that name.

    Raises:
        InputError: There is none.
    """
    if name not in GRANULARITIES:
        raise InputError(f"'{name}' is no granularity", hint=nearest_name_hint(name, GRANULARITIES))
    return GRANULARITIES[name]


def named_for_a_map(model: Model) -> Model:
    """The model, when its file name can stand in a map.

    Raises:
        ModelError: It cannot: a map is UTF-8 text, and names a file without a folder.
    """
    try:
        model.name.encode()
        fits = re.fullmatch(FILE_NAME_PATTERN, model.name) is not None
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise ModelError(
            "a delegate map cannot hold this file name: it has a backslash, control characters or bytes that are not UTF-8",
            where=repr(model.name),
            hint="rename the file",
        )
    return model


def board_of(target: Target) -> BoardProfile:
    """The profile that ``--board``, ``--platform`` and ``--set`` describe."""
    return load_board(target.board, target.boards_dirs, target.overrides, target.platforms)


def resized_inputs(graph: Graph, texts: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """The shapes that ``--shape`` asks for, by tensor number; empty when they are the file's own."""
    tensors = [graph.tensors[tensor] for tensor in graph.inputs]
    by_name = parse_shapes(texts, tensors, graph.input_names)
    numbers = dict(zip(graph.input_names, graph.inputs, strict=True))
    wanted = {numbers[name]: shape for name, shape in by_name.items()}
    return {tensor: shape for tensor, shape in wanted.items() if shape != graph.tensors[tensor].shape}


def graph_on(board: LiveBoard, model: Model, signature: str, shape_texts: Sequence[str]) -> Graph:
    """The graph of an entry, with all shapes as the board's runtime computes them after ``--shape``."""
    graph = build_graph(model, signature=signature)
    resized = resized_inputs(graph, shape_texts)
    if not resized:
        return graph
    if graph.subgraph != 0:
        raise InputError(
            f"signature '{signature}' runs subgraph {graph.subgraph}; only the inputs of subgraph 0 can be resized",
            hint="leave out --shape, or export the model with that signature as its main graph",
        )
    found = board.agent.shapes(original_file(model), resized, runtime=board.cpu_runtime)
    known = {tensor: shape for tensor, shape in found.shapes.items() if tensor not in found.dynamic}
    return build_graph(model, signature=signature, shapes=known)


def graph_here(model: Model, signature: str, shape_texts: Sequence[str]) -> Graph:
    """The graph of an entry; other shapes than the file's are computed by this machine's runtime, in a worker."""
    graph = build_graph(model, signature=signature)
    if not resized_inputs(graph, shape_texts):
        return graph
    with bring_up(load_board("local", platforms=("cpu",))) as board:
        return graph_on(board, model, signature, shape_texts)


def graph_of_map(delegate_map: DelegateMap, model: Model) -> Graph:
    """The graph that a map places."""
    return graph_here(model, delegate_map.model.signature, shape_texts(delegate_map))


def shape_texts(delegate_map: DelegateMap) -> list[str]:
    """A map's input shapes as ``--shape`` takes them."""
    return [f"{name}={'x'.join(map(str, shape))}" for name, shape in delegate_map.model.shapes.items()]


def inputs_for(graph: Graph, path: Path | None) -> InputSet:
    """The user's samples, or seeded ones."""
    tensors = [graph.tensors[tensor] for tensor in graph.inputs]
    if path is None:
        return random_inputs(tensors, graph.input_names)
    return load_inputs(path, tensors, graph.input_names)


def workbench_on(board: LiveBoard, model: Model, graph: Graph, run_deadline_s: float) -> Workbench:
    """A workbench for one graph on a live board."""
    return Workbench(
        board.agent,
        model,
        graph,
        SegmentCutter(model, contract(graph, "op")),
        {name: platform.spec for name, platform in board.platforms.items()},
        Deadlines.of_run(run_deadline_s),
    )


def numerics_on(
    board: LiveBoard,
    workbench: Workbench,
    inputs: InputSet,
    limit: Limit,
    metric: Metric | None,
    *,
    cache: OutputCache | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Numerics:
    """What right outputs are, from the board's own CPU kernels; arguments and errors as for ``calibrate``."""
    return calibrate(
        workbench,
        inputs,
        limit,
        runtime=board.cpu_runtime,
        runtime_version=board.runtime_versions,
        machine=board.info.machine,
        original=runs_as_given(workbench.graph, workbench.model),
        metric=metric,
        cache=cache,
        report=report,
    )


def timing_plan(request: OptimizeRequest) -> TimingPlan:
    """How each placement is timed."""
    return TimingPlan(budget_s=request.sample_budget_s)


def runs_as_given(graph: Graph, model: Model) -> bool:
    """True when the file as it is computes this graph: subgraph 0 with the file's own shapes."""
    own = model.subgraphs[graph.subgraph].tensors
    return graph.subgraph == 0 and all(t.shape == own[t.index].shape for t in graph.tensors)


def writable(path: Path) -> Path:
    """The path; that a file cannot be written there is found out now, not after an hour of measuring.

    Raises:
        OutputError: It is a folder, there is no such folder, or no permission.
    """
    folder = path.parent
    if path.is_dir():
        raise OutputError("is a folder; a file is to be written there", where=str(path))
    if not folder.is_dir():
        raise OutputError(
            "there is no such folder", where=str(folder), hint=f"mkdir -p {shlex.quote(str(folder))}"
        )
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise OutputError(
            "no permission to write there", where=str(path), hint="name another file with --out"
        )
    return path
