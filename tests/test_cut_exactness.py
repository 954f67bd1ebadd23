"""A cut is right when its segments, run in order, give bit for bit what the whole model gives on the same kernels.

Random placements over authored, random and fetched models are planned, cut and executed with the interpreter, over
several invocations (state). Everything runs in a child process: some models end the process that runs them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from model_files import available_models, model_path

from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import Granularity, contract
from edgeplace.graph.graph import UnitGraph
from edgeplace.placement.cut_points import cut_in_parts
from edgeplace.placement.plan import Placement, Plan, Source
from edgeplace.placement.segmentation import make_plan
from edgeplace.placement.segments import SegmentCutter
from edgeplace.testing.model_builder import Builder
from edgeplace.testing.models import AUTHORED, NOT_RUNNABLE, random_graph
from edgeplace.tflite.reader import Model

BUILTIN = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
REFERENCE = "BUILTIN_REF"
INVOCATIONS = 3
GRANULARITIES: tuple[Granularity, ...] = ("op", "unit", "block")


@dataclass(frozen=True)
class Case:
    """Placements of one model to execute: what a worker needs to know, and nothing that cannot be pickled."""

    model: str
    content: bytes
    kernels: str
    granularities: tuple[Granularity, ...]
    placements: int
    signature: str = ""
    whole: bytes = b""  # what to compare with, when not the model itself


@dataclass(frozen=True)
class Outcome:
    """How many plans were executed, how many segments they had in all, and every difference found."""

    executed: int
    segments: int
    differences: tuple[str, ...]
    skipped: str = ""


class Runner:
    """One file in one interpreter."""

    def __init__(self, content: bytes, kernels: str) -> None:
        self._interpreter = Interpreter(
            model_content=content, experimental_op_resolver_type=OpResolverType[kernels], num_threads=1
        )
        self._interpreter.allocate_tensors()
        self.inputs = self._interpreter.get_input_details()
        self._outputs = self._interpreter.get_output_details()

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        for detail, value in zip(self.inputs, values, strict=True):
            self._interpreter.set_tensor(detail["index"], value)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(detail["index"]) for detail in self._outputs]


class PlanRunner:
    """The smallest thing that runs a plan: an interpreter per segment and the wiring."""

    def __init__(self, cutter: SegmentCutter, plan: Plan, kernels: str) -> None:
        self._plan = plan
        self._segments = [Runner(cutter.file(segment).to_bytes(), kernels) for segment in plan.segments]
        self._constants = cutter.constants(plan)

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        made: list[list[Any]] = []

        def value(source: Source) -> Any:
            if source.kind == "input":
                return values[source.index]
            if source.kind == "constant":
                return self._constants[source.index]
            return made[source.index][source.output]

        for segment, runner in zip(self._plan.segments, self._segments, strict=True):
            made.append(runner([value(source) for source in segment.sources]))
        return [value(source) for source in self._plan.outputs]


def random_value(shape: Sequence[int], dtype: str, random: np.random.Generator) -> Any:
    """A value for a graph input; integers are small so that they do as indices, extents and counts too."""
    if dtype == "string":
        return random.choice(np.array([b"yes", b"no", b"maybe"]), size=tuple(shape))
    if dtype == "bool":
        return np.array(random.integers(0, 2, tuple(shape)), dtype=bool)
    if dtype in ("int8", "uint8", "int16"):
        limits = np.iinfo(dtype)
        return np.array(random.integers(limits.min, limits.max, tuple(shape), endpoint=True), dtype=dtype)
    if dtype.startswith(("int", "uint")):
        return np.array(random.integers(1, 4, tuple(shape)), dtype=dtype)
    return np.array(random.standard_normal(tuple(shape)), dtype=dtype)


def graph_inputs(unit_graph: UnitGraph, random: np.random.Generator) -> list[Any]:
    graph = unit_graph.graph
    values = []
    for tensor, name in zip(graph.inputs, graph.input_names, strict=True):
        if name == "target":
            # The shape that dynamic_reshape makes of 12 elements. It is the same every time: the runtime sizes what
            # follows at the first invocation, and the whole model keeps that size where a segment does not.
            values.append(np.array([3, 4], np.int32))
        else:
            values.append(random_value(graph.tensors[tensor].shape, graph.tensors[tensor].dtype, random))
    return values


def random_placement(unit_graph: UnitGraph, random: np.random.Generator) -> Placement:
    """Platforms at random: unit by unit, in runs, or by the type of the first node."""
    names = ["a", "b", "c"][: random.integers(2, 4)]
    units = unit_graph.units
    form = random.integers(3)
    if form == 0:
        return Placement(tuple(str(random.choice(names)) for _ in units))
    if form == 1:
        borders = random.random(len(units)) < 0.3
        return Placement(tuple(names[at % len(names)] for at in np.cumsum(borders)))
    by_type = {unit_graph.graph.nodes[unit.nodes[0]].op_type: "" for unit in units}
    chosen = {op_type: str(random.choice(names)) for op_type in sorted(by_type)}
    return Placement(tuple(chosen[unit_graph.graph.nodes[unit.nodes[0]].op_type] for unit in units))


def same_bits(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype.kind in "OS":
        return bool(one.shape == other.shape and one.tolist() == other.tolist())
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def execute(case: Case) -> Outcome:
    """Execute random placements of one model and compare each with the whole model. Runs in the child."""
    if case.kernels == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    model = Model.from_bytes(case.content, case.model)
    try:
        Runner(case.whole or case.content, case.kernels)
    except (RuntimeError, ValueError) as error:
        return Outcome(0, 0, (), skipped=f"{case.model}: the whole model does not run: {error}")
    graph = build_graph(model, signature=case.signature)
    differences: list[str] = []
    executed = segments = 0
    for granularity in case.granularities:
        unit_graph = contract(graph, granularity)
        cutter = SegmentCutter(model, unit_graph)
        random = np.random.default_rng([len(case.model), *case.model.encode(), len(granularity)])
        samples = [graph_inputs(unit_graph, random) for _ in range(INVOCATIONS)]
        expected = run_whole(case, unit_graph, samples)
        plans = [make_plan(unit_graph, random_placement(unit_graph, random)) for _ in range(case.placements)]
        if len(unit_graph.units) > 1:
            # Every unit on its own: all borders there are, at once.
            plans.append(cut_in_parts(unit_graph, len(unit_graph.units)).plan)
        for plan in plans:
            text = f"{case.model} {granularity} {[(s.platform, s.nodes) for s in plan.segments]}"
            try:
                runner = PlanRunner(cutter, plan, case.kernels)
                results = [runner(sample) for sample in samples]
            except (RuntimeError, ValueError) as error:
                differences.append(f"{text}: {error}")
                continue
            executed += 1
            segments += len(plan.segments)
            differences += [
                f"{text}: output {number} of invocation {step} differs"
                for step, (whole, parts) in enumerate(zip(expected, results, strict=True))
                for number, (one, other) in enumerate(zip(whole, parts, strict=True))
                if not same_bits(one, other)
            ]
    return Outcome(executed, segments, tuple(differences))


def run_whole(case: Case, unit_graph: UnitGraph, samples: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Outputs of the whole model, from the file itself (an entry that is not subgraph 0 through its signature)."""
    graph = unit_graph.graph
    if graph.subgraph == 0:
        whole = Runner(case.whole or case.content, case.kernels)
        return [whole(sample) for sample in samples]
    interpreter = Interpreter(
        model_content=case.content, experimental_op_resolver_type=OpResolverType[case.kernels], num_threads=1
    )
    entry = interpreter.get_signature_runner(case.signature)
    results = []
    for sample in samples:
        given = entry(**dict(zip(graph.input_names, sample, strict=True)))
        results.append([np.copy(given[name]) for name in graph.output_names])
    return results


@dataclass
class Child:
    """A process that executes cases; when a case ends it, the next case gets a new one."""

    pool: ProcessPoolExecutor | None = None

    def execute(self, case: Case) -> Outcome:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            return self.pool.submit(execute, case).result()
        except BrokenProcessPool:
            self.pool = None
            return Outcome(0, 0, (f"{case.model} ({case.kernels}): the process that ran it crashed",))


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    child = Child()
    yield child
    if child.pool is not None:
        child.pool.shutdown()


RUNNABLE = sorted(set(AUTHORED) - NOT_RUNNABLE)
FETCHED = (
    "alexa", "anomaly_detection", "face_detection_short_range", "face_landmark", "hand_recrop",
    "image_classification", "keyword_spotting", "keyword_spotting_on_off_v3", "okay_nabu", "visual_wake_words",
)  # fmt: skip


def check(child: Child, cases: Sequence[Case], at_least: int) -> None:
    """All plans of all cases run, and give what the whole models give."""
    outcomes = [child.execute(case) for case in cases]
    assert [text for outcome in outcomes for text in outcome.differences] == []
    assert [outcome.skipped for outcome in outcomes if outcome.skipped] == []
    assert sum(outcome.executed for outcome in outcomes) >= at_least


def authored(kernels: str, granularities: tuple[Granularity, ...], placements: int) -> list[Case]:
    return [Case(name, AUTHORED[name](), kernels, granularities, placements) for name in RUNNABLE]


def random_graphs(
    count: int, kernels: str, granularities: tuple[Granularity, ...], placements: int
) -> list[Case]:
    return [
        Case(f"random graph {seed}", random_graph(seed), kernels, granularities, placements)
        for seed in range(count)
    ]


def fetched(name: str, kernels: str, granularities: tuple[Granularity, ...], placements: int) -> Case:
    return Case(name, model_path(name).read_bytes(), kernels, granularities, placements)


def test_authored_models_on_builtin_kernels(child: Child) -> None:
    check(child, authored(BUILTIN, ("op", "unit"), 4), 200)


def test_random_graphs_on_builtin_kernels(child: Child) -> None:
    check(child, random_graphs(24, BUILTIN, ("op",), 4), 100)


def test_authored_models_on_reference_kernels(child: Child) -> None:
    check(child, authored(REFERENCE, ("op",), 1), 30)


@pytest.mark.parametrize("name", FETCHED)
def test_real_models_on_builtin_kernels(child: Child, name: str) -> None:
    check(child, [fetched(name, BUILTIN, ("op", "unit"), 2)], 5)


def test_every_signature_is_an_entry_of_its_own(child: Child) -> None:
    content = AUTHORED["two_signatures"]()
    keys = [signature.key for signature in Model.from_bytes(content).signatures]
    assert len(keys) == 2
    check(child, [Case(key, content, BUILTIN, ("op",), 3, signature=key) for key in keys], 6)


def test_a_file_out_of_order_runs_as_it_was_meant(child: Child) -> None:
    """No runtime runs a file whose operators stand backwards; its segments give what the file in order gives."""
    contents = []
    for step in (1, -1):
        builder = Builder(5)
        g = builder.graph()
        stem = g.conv(g.input((1, 8, 8, 4)), 8)
        g.output(g.unary("RELU", g.add(g.conv(stem, 8, size=1), g.depthwise(stem))), g.pool(stem, 8))
        g.graph.operators = g.graph.operators[::step]
        contents.append(builder.finish())
    forwards, backwards = contents
    check(child, [Case("backwards", backwards, BUILTIN, ("op", "unit"), 4, whole=forwards)], 9)


def test_a_model_that_only_a_delegate_runs_is_reported(child: Child) -> None:
    outcome = child.execute(fetched("selfie_segmentation", BUILTIN, ("unit",), 1))
    assert outcome.executed == 0
    assert "Convolution2DTransposeBias" in outcome.skipped


def test_a_crash_of_the_child_is_a_difference_and_the_next_case_runs(child: Child) -> None:
    case = Case("conv_chain", AUTHORED["conv_chain"](), BUILTIN, ("op",), 1)
    crash = Case("crash", b"", "crash", (), 0)
    assert child.execute(crash).differences == ("crash (crash): the process that ran it crashed",)
    check(child, [case], 2)


@pytest.mark.full
@pytest.mark.parametrize("kernels", [BUILTIN, REFERENCE])
def test_all_small_models_thoroughly(child: Child, kernels: str) -> None:
    cases = authored(kernels, GRANULARITIES, 12) + random_graphs(150, kernels, GRANULARITIES, 4)
    check(child, cases, 2000)


@pytest.mark.full
@pytest.mark.parametrize("name", available_models())
def test_all_fetched_models_thoroughly(child: Child, name: str) -> None:
    case = fetched(name, BUILTIN, GRANULARITIES, 5)
    outcome = child.execute(case)
    assert outcome.differences == ()
    assert outcome.executed or "unresolved custom op" in outcome.skipped


@pytest.mark.full
@pytest.mark.parametrize("name", ["selfie_segmentation", "face_detection_full_range_sparse", "okay_nabu"])
def test_cuts_are_exact_on_the_default_delegate_too(child: Child, name: str) -> None:
    check(child, [fetched(name, "AUTO", GRANULARITIES, 3)], 9)
