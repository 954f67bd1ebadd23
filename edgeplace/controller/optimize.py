"""The road from a model and a board to a delegate map, in the order the patent's claims name the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeplace.controller.finalists import hold_final
from edgeplace.controller.map_from_search import map_from_search
from edgeplace.controller.prepare import (
    board_of,
    granularity_of,
    graph_on,
    inputs_for,
    named_for_a_map,
    numerics_on,
    timing_plan,
    workbench_on,
    writable,
)
from edgeplace.controller.records import StoredTrials, search_session
from edgeplace.controller.requests import Observer, OptimizeRequest, SilentObserver
from edgeplace.controller.search import Search, choose_optimizer, measure_until_done
from edgeplace.delegate_map import DelegateMap, save_map
from edgeplace.errors import ModelError
from edgeplace.graph.contract import contract
from edgeplace.measure.agreement import Limit
from edgeplace.measure.bench import Bench
from edgeplace.measure.board import bring_up
from edgeplace.measure.metric import load_metric
from edgeplace.measure.numerics import reference_tensors
from edgeplace.measure.support import SupportFinder
from edgeplace.placement.constraints import build_space, parse_rule
from edgeplace.store import Store
from edgeplace.tflite.reader import Model


@dataclass(frozen=True)
class OptimizeOutcome:
    """What a search ended with.

    Attributes:
        map: The delegate map.
        map_path: Where it was written.
        rows: The final table, one row per single platform, default and chosen placement.
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
        AgentError: The agent does not start, or ended and did not come back.
        StoreError: The records cannot be read or written, or there is nothing to resume.
        NoFeasiblePlacementError: Nothing runs and gives right outputs.
        SearchInterrupted: Ctrl-C; what was measured is kept.
        OutputError: The map cannot be written.
    """
    watch = observer or SilentObserver()
    # What is wrong with the request itself is said before a board is touched.
    granularity = granularity_of(request.granularity)
    model = named_for_a_map(Model.load(request.model))
    profile = board_of(request.target)
    pins = [parse_rule("pin", text) for text in request.pins]
    bans = [parse_rule("ban", text) for text in request.bans]
    metric = load_metric(request.metric) if request.metric else None
    map_path = writable(request.out or Path(f"{request.model.stem}.{profile.name}.yaml"))

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
        limit = Limit(cosine=request.min_cosine, snr_db=request.min_snr_db, metric=request.metric_min)
        numerics = numerics_on(board, workbench, inputs, limit, metric, cache=store, report=watch.advance)
        if numerics.gate.limit.weakness:
            watch.note(f"{numerics.gate.limit.weakness}; give real inputs with --inputs, or a --metric")

        with search_session(store, request, board, graph, inputs, watch) as session:
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
                recorder=session,
                strikes=session.strikes,
            )
            optimizer = choose_optimizer(request, space, support, bench)
            finished_by = measure_until_done(optimizer, bench, request.minutes, watch)

            search = Search(request, board, numerics, support, bench, optimizer, session, finished_by)
            final, entrants = hold_final(search, watch)
            delegate_map, rows = map_from_search(search, final, entrants)
            save_map(delegate_map, map_path)
            session.finish(map_path.read_text(encoding="utf-8"))
    return OptimizeOutcome(delegate_map, map_path, rows)
