"""The search: from a model and a board to a delegate map, in the order the patent's claims name the steps."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeplace.catalog import OPTIMIZERS
from edgeplace.controller.map_from_search import SearchFacts, map_from_search
from edgeplace.controller.prepare import (
    board_of,
    granularity_of,
    graph_on,
    inputs_for,
    runs_as_given,
    workbench_on,
)
from edgeplace.controller.records import SessionRecorder, StoredTrials
from edgeplace.controller.requests import (
    DEFAULT_SURROGATE_BUDGET,
    Observer,
    OptimizeRequest,
    SearchInterrupted,
    SilentObserver,
)
from edgeplace.delegate_map import DelegateMap, save_map
from edgeplace.errors import ModelError, NoFeasiblePlacementError, OutputError
from edgeplace.graph.contract import contract
from edgeplace.graph.graph import Graph
from edgeplace.measure.agreement import Limit
from edgeplace.measure.bench import Bench
from edgeplace.measure.board import LiveBoard, bring_up
from edgeplace.measure.final import Entrant, FinalResult, run_final
from edgeplace.measure.inputs import InputSet
from edgeplace.measure.measurement import Failure, Measurement
from edgeplace.measure.metric import load_metric
from edgeplace.measure.numerics import Numerics, calibrate, reference_tensors
from edgeplace.measure.statistics import TimingPlan
from edgeplace.measure.support import Support, SupportFinder
from edgeplace.measure.workbench import Workbench, whole_plan
from edgeplace.optimizers.base import Optimizer, SearchHints
from edgeplace.optimizers.gate import choose_method
from edgeplace.placement.constraints import build_space, parse_rule
from edgeplace.placement.plan import Placement, Plan
from edgeplace.placement.space import PlacementSpace
from edgeplace.store import Session, Store, session_key
from edgeplace.tflite.reader import Model

LOG = logging.getLogger(__name__)

DEFAULT_PLATFORM = "runtime-default"
"""What the runtime does with the file as given: all of it on the CPU's default delegate."""

MIXED_IN_FINAL = 2
"""The fastest mix of platforms, and the next."""
HOPELESS = 3.0
"""What is slower than the fastest by this factor is measured but takes no part in the final."""


@dataclass(frozen=True)
class OptimizeOutcome:
    """What a search ended with.

    Attributes:
        map: The delegate map.
        map_path: Where it was written.
        rows: The final table, one row per single platform, default and chosen placement.
        boards: Facts about the board's platforms.
    """

    map: DelegateMap
    map_path: Path
    rows: Sequence[Mapping[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for ``--json`` and the tables."""
        return {
            "map_file": str(self.map_path),
            "map": self.map.model_dump(mode="json", exclude_none=True),
            "rows": [dict(row) for row in self.rows],
        }


def optimize(request: OptimizeRequest, observer: Observer | None = None) -> OptimizeOutcome:
    """Find the fastest right placement of a model on a board and write its delegate map.

    Raises:
        InputError: Something asked for is wrong (model, inputs, pins, names).
        LinkError: The board cannot be reached.
        NoFeasiblePlacementError: Nothing runs and gives right outputs.
        SearchInterrupted: Ctrl-C; what was measured is kept.
        OutputError: The map cannot be written.
    """
    watch = observer or SilentObserver()
    granularity = granularity_of(request.granularity)
    model = Model.load(request.model)
    profile = board_of(request.target)
    pins = [parse_rule("pin", text) for text in request.pins]
    bans = [parse_rule("ban", text) for text in request.bans]
    metric = load_metric(request.metric) if request.metric else None
    map_path = _writable(request.out or Path(f"{request.model.stem}.{profile.name}.yaml"))

    watch.stage(f"bringing up {profile.name}", len(profile.platforms) + 1)
    with Store.open(request.store) as store, bring_up(profile, watch.advance) as board:
        for name, reason in board.left_out.items():
            watch.note(f"platform {name} is left out: {reason}")
        graph = graph_on(board, model, request.signature, request.shapes)
        if not graph.nodes:
            raise ModelError("it has no operators, so there is nothing to place", where=str(request.model))
        inputs = inputs_for(graph, request.inputs)
        workbench = workbench_on(board, model, graph, request.run_deadline_s)

        watch.stage("reference", 3)
        numerics = calibrate(
            workbench,
            inputs,
            Limit(cosine=request.min_cosine, snr_db=request.min_snr_db, metric=request.metric_min),
            runtime=board.cpu_runtime,
            runtime_version=_runtime_version(board),
            machine=board.info.machine,
            original=runs_as_given(graph, model),
            metric=metric,
            cache=store,
            report=watch.advance,
        )
        if numerics.gate.limit.weakness:
            watch.note(f"{numerics.gate.limit.weakness}; give real inputs with --inputs, or a --metric")

        session = _open_session(store, request, board, graph, inputs, watch)
        recorder = SessionRecorder(session)
        with _interruptible(recorder):
            unit_graph = contract(graph, granularity)
            platforms = tuple(board.platforms)
            watch.stage("support, by trying", len(unit_graph.units) * len(platforms))
            tensors = reference_tensors(workbench, unit_graph, numerics)
            finder = SupportFinder(
                workbench,
                tensors,
                numerics.gate,
                trusted=board.trusted,
                memory=StoredTrials(store, board, numerics),
                report=watch.advance,
            )
            support = finder.find(unit_graph, platforms)
            space = build_space(
                support.unit_graph, platforms, support.supported(), pins, bans, reasons=support.reasons()
            )
            bench = Bench(
                workbench,
                space.unit_graph,
                numerics,
                tensors,
                timing_plan(request),
                finder,
                trusted=board.trusted,
                recorder=recorder,
                strikes=session.strikes(),
            )
            optimizer = _choose_optimizer(request, space, support, bench)
            finished_by = _search(optimizer, bench, request.minutes, watch)
            final, entrants = _final(optimizer, bench, space, board, numerics, request, watch)
        facts = SearchFacts(
            request=request,
            model=model,
            board=board,
            graph=graph,
            numerics=numerics,
            support=support,
            space=space,
            bench=bench,
            optimizer=optimizer,
            final=final,
            entrants=entrants,
            finished_by=finished_by,
        )
        delegate_map, rows = map_from_search(facts)
        save_map(delegate_map, map_path)
        session.finish(map_path.read_text(encoding="utf-8"))
    return OptimizeOutcome(delegate_map, map_path, rows)


def _search(optimizer: Optimizer, bench: Bench, minutes: float | None, watch: Observer) -> str:
    """Ask, measure, tell, until the optimizer is done or the time is up; says what ended it."""
    started_s = time.monotonic()
    best_ms: float | None = None
    watch.stage(f"measuring ({optimizer.name})", _expected_measurements(optimizer))
    while placements := optimizer.ask():
        results: list[tuple[Placement, Measurement]] = []
        for placement in placements:
            if minutes is not None and time.monotonic() - started_s > minutes * 60:
                optimizer.tell(results)
                return "minutes"
            measurement = bench.measure(placement)
            results.append((placement, measurement))
            if measurement.p50_ms is not None:
                best_ms = measurement.p50_ms if best_ms is None else min(best_ms, measurement.p50_ms)
            best = "nothing works yet" if best_ms is None else f"best so far {best_ms:.3f} ms"
            watch.advance(f"{best}; {_in_words(bench.plan(placement))}")
        optimizer.tell(results)
    return optimizer.finished_by


def _in_words(plan: Plan) -> str:
    platforms = dict.fromkeys(segment.platform for segment in plan.segments)
    return f"{len(plan.segments)} segments on {' + '.join(platforms)}"


def _expected_measurements(optimizer: Optimizer) -> int:
    return optimizer.space.size if optimizer.budget is None else min(optimizer.budget, optimizer.space.size)


def _choose_optimizer(
    request: OptimizeRequest, space: PlacementSpace, support: Support, bench: Bench
) -> Optimizer:
    """Claim 2: fewer placements than the threshold are all measured, otherwise the trained optimizer searches."""
    name = request.optimizer or choose_method(space.size, request.threshold)
    budget = request.budget
    if budget is None and name != "exhaustive":
        budget = DEFAULT_SURROGATE_BUDGET
    return OPTIMIZERS.get(name)(
        space,
        seed=request.seed,
        budget=budget,
        hints=SearchHints(unit_times_ms=support.unit_times_ms()),
        plan_key=lambda placement: bench.plan(placement).id,
    )


def _final(
    optimizer: Optimizer,
    bench: Bench,
    space: PlacementSpace,
    board: LiveBoard,
    numerics: Numerics,
    request: OptimizeRequest,
    watch: Observer,
) -> tuple[FinalResult, list[Entrant]]:
    """The fastest found and its runner-up against the single platforms and the runtime's default, interleaved."""
    entrants, too_slow = _entrants(optimizer, bench, space, board, numerics, request)
    watch.stage("final", 1)
    watch.advance(f"{len(entrants)} plans interleaved", 0)
    sample = numerics.inputs.samples[0]
    final = run_final(bench.workbench, entrants, sample, rounds=request.rounds)
    if not final.p50_ms:
        raise NoFeasiblePlacementError(
            "no placement ran in the final: " + "; ".join(f"{n}: {f}" for n, f in final.failures.items())
        )
    return final, [*entrants, *too_slow]


def _entrants(
    optimizer: Optimizer,
    bench: Bench,
    space: PlacementSpace,
    board: LiveBoard,
    numerics: Numerics,
    request: OptimizeRequest,
) -> tuple[list[Entrant], list[Entrant]]:
    """Who takes part in the final, and who is measured but too slow for it."""
    singles = _measured_singles(optimizer, bench, space)
    mixed = sorted(
        (
            (ms, placement)
            for placement, ms in optimizer.timed()
            if len({segment.platform for segment in bench.plan(placement).segments}) > 1
        ),
        key=lambda pair: pair[0],
    )
    if not singles and not mixed:
        raise NoFeasiblePlacementError(
            "no placement runs and gives right outputs: " + "; ".join(_failures_in_words(optimizer)),
            hint="edgeplace inspect shows the units; --granularity op cuts finer, --min-snr loosens the bound",
        )
    entrants = [
        Entrant(name, bench.plan(placement), known_ms, is_single=True)
        for known_ms, name, placement in singles
    ]
    found: dict[str, Entrant] = {}
    for known_ms, placement in mixed:
        plan = bench.plan(placement)
        if plan.id not in found and len(found) < MIXED_IN_FINAL:
            found[plan.id] = Entrant("next mix" if found else "fastest mix", plan, known_ms)
    entrants += [*found.values(), *_defaults(bench.workbench, board, numerics, request)]
    best_ms = min(entrant.known_ms for entrant in entrants if entrant.competes)
    return [entrant for entrant in entrants if entrant.known_ms <= best_ms * HOPELESS], [
        entrant for entrant in entrants if entrant.known_ms > best_ms * HOPELESS
    ]


def _measured_singles(
    optimizer: Optimizer, bench: Bench, space: PlacementSpace
) -> list[tuple[float, str, Placement]]:
    """Single platforms that work, fastest first; those the optimizer did not get to are measured now."""
    singles: list[tuple[float, str, Placement]] = []
    for name in space.platforms:
        placement = space.single(name)
        if placement is None:
            continue
        measurement = bench.measure(placement)
        if measurement.p50_ms is not None:
            singles.append((measurement.p50_ms, name, placement))
    return sorted(singles, key=lambda entry: entry[:2])


def _defaults(
    workbench: Workbench, board: LiveBoard, numerics: Numerics, request: OptimizeRequest
) -> list[Entrant]:
    """What the runtimes do by themselves with the whole model: the CPU default, and each accelerator with fallback."""
    graph = workbench.graph
    original = runs_as_given(graph, workbench.model)
    specs: dict[str, Mapping[str, Any]] = {
        DEFAULT_PLATFORM: {
            "kind": "cpu",
            "loader": "interpreter",
            "runtime": board.cpu_runtime,
            "options": {},
        }
    }
    for name, platform in board.platforms.items():
        if platform.profile.loader == "compiled_model" and platform.profile.kind != "cpu":
            options = {**platform.spec["options"], "fallback": True}
            specs[f"{name}+cpu default"] = {**platform.spec, "options": options}
    entrants = []
    for name, spec in specs.items():
        workbench.add_platform(name, spec)
        plan = whole_plan(graph, name)
        ran = workbench.run(plan, numerics.inputs.samples, original=original)
        if isinstance(ran, Failure):
            LOG.info("default '%s' does not run: %s", name, ran)
            continue
        agreement, wrong = numerics.judge(ran, whole_cpu=spec["kind"] == "cpu")
        timing = workbench.measure(plan, numerics.inputs.samples[0], timing_plan(request), original=original)
        if isinstance(timing, Failure):
            LOG.info("default '%s' cannot be timed: %s", name, timing)
            continue
        entrants.append(
            Entrant(
                name,
                plan,
                timing.p50_ms,
                original=original,
                competes=False,
                agreement=agreement,
                wrong=wrong,
            )
        )
    return entrants


def timing_plan(request: OptimizeRequest) -> TimingPlan:
    """How each placement is timed."""
    return TimingPlan(budget_s=request.sample_budget_s)


def _failures_in_words(optimizer: Optimizer) -> list[str]:
    return [str(m.failure) for _, m in optimizer.results if m.failure is not None][:3]


def _open_session(
    store: Store,
    request: OptimizeRequest,
    board: LiveBoard,
    graph: Graph,
    inputs: InputSet,
    watch: Observer,
) -> Session:
    facts = {
        "model": graph.model_sha256,
        "signature": graph.signature,
        "shapes": [list(graph.tensors[t].shape) for t in graph.inputs],
        "board": board.fingerprint(),
        "platforms": {name: platform.identity for name, platform in board.platforms.items()},
        "granularity": request.granularity,
        "pins": sorted(request.pins),
        "bans": sorted(request.bans),
        "inputs": inputs.sha256,
        "limits": [request.min_cosine, request.min_snr_db, request.metric, request.metric_min],
        "seed": request.seed,
    }
    key = session_key(facts)
    last = store.last_session(key)
    if not request.resume and last is not None and last.finished_at is None:
        watch.note(
            f"an unfinished search of this model with {last.measured} measurements exists; --resume goes on with it"
        )
    return store.session(key, {"model_file": graph.model_name, **facts}, resume=request.resume)


def _runtime_version(board: LiveBoard) -> str:
    runtime = board.cpu_runtime
    runtimes = board.info.runtimes
    if runtime in runtimes:
        return f"{runtime} {runtimes[runtime]}"
    return " ".join(f"{name} {version}" for name, version in sorted(runtimes.items()))


def _writable(path: Path) -> Path:
    """Find out now, not after an hour of measuring, that the map cannot be written."""
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


@contextlib.contextmanager
def _interruptible(recorder: SessionRecorder) -> Iterator[None]:
    """Ctrl-C keeps every measurement and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        recorder.give_up("interrupted")
        raise SearchInterrupted(
            f"interrupted; {recorder.measured} measurements are kept",
            hint="the same command with --resume goes on with them",
        ) from None
