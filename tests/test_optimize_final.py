"""From a search to its final and its map: who meets whom, and what the map says of it. On a fake workbench."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_workbench import FakeWorkbench, fake_board, reference_of

from edgeplace.controller.finalists import DEFAULT_PLATFORM, hold_final
from edgeplace.controller.map_from_search import map_from_search
from edgeplace.controller.requests import OptimizeRequest, SilentObserver
from edgeplace.controller.search import Search, choose_optimizer, measure_until_done
from edgeplace.delegate_map import DelegateMap
from edgeplace.errors import NoFeasiblePlacementError
from edgeplace.measure.bench import Bench
from edgeplace.measure.final import FinalResult
from edgeplace.measure.measurement import Failure, Timing
from edgeplace.measure.statistics import TimingPlan
from edgeplace.measure.support import SupportFinder
from edgeplace.placement.plan import Placement
from edgeplace.placement.segmentation import make_plan
from edgeplace.placement.space import PlacementSpace
from edgeplace.store import RecordKind
from edgeplace.testing.toy import toy_unit_graph

UNITS = toy_unit_graph(3)
REFUSED = Failure("unsupported", "there is no kernel for it", "compile")


class KeepsNothing:
    """Records that are not kept."""

    def keep(
        self, kind: RecordKind, plan_id: str, name: str, run: Callable[[], Timing | Failure]
    ) -> Timing | Failure:
        return run()

    def keep_final(self, run: Callable[[], FinalResult], plan_ids: Mapping[str, str]) -> FinalResult:
        return run()


def search_with(times_ms: dict[str, float], *, npu_cannot: int | None = None) -> Search:
    """A finished search over cpu, cpu_ref and npu in which every plan has the time given for its platforms.

    Args:
        times_ms: Platforms of the three units -> time; what is not named takes 100 ms.
        npu_cannot: A unit that does not run on the npu.
    """
    workbench = FakeWorkbench(UNITS.graph, {} if npu_cannot is None else {(npu_cannot, "npu"): REFUSED})
    names = ("cpu", "cpu_ref", "npu")
    numerics, tensors = reference_of(UNITS.graph)
    finder = SupportFinder(workbench, tensors, numerics.gate, trusted=frozenset({"cpu", "cpu_ref"}))
    support = finder.find(UNITS, names)
    space = PlacementSpace(
        UNITS,
        tuple(tuple(name for name in names if support.supported()[unit, name]) for unit in range(3)),
    )
    workbench.p50_ms = {make_plan(UNITS, placement).id: 100.0 for placement in space} | {
        plan_id(platforms): ms for platforms, ms in times_ms.items()
    }
    request = OptimizeRequest(model=Path("toy.tflite"), rounds=12)
    bench = Bench(workbench, UNITS, numerics, tensors, TimingPlan(), finder, trusted=frozenset({"cpu"}))
    optimizer = choose_optimizer(request, space, support, bench)
    finished_by = measure_until_done(optimizer, bench, None, SilentObserver())
    return Search(
        request, fake_board(*names), numerics, support, bench, optimizer, KeepsNothing(), finished_by
    )


def plan_id(platforms: str) -> str:
    return make_plan(UNITS, Placement(tuple(platforms.split()))).id


def conclude(search: Search) -> tuple[DelegateMap, dict[str, dict[str, Any]]]:
    """The map, and the rows of the final table by name."""
    final, entrants = hold_final(search, SilentObserver())
    found, rows = map_from_search(search, final, entrants)
    return found, {row["name"]: row for row in rows}


def test_the_final_is_between_the_best_mixes_and_the_single_platforms() -> None:
    search = search_with(
        {"cpu cpu cpu": 10, "npu npu npu": 12, "cpu npu npu": 8, "npu npu cpu": 9, "cpu npu cpu": 9.5}
    )
    found, rows = conclude(search)
    assert [segment.platform for segment in found.segments] == ["cpu", "npu"]
    assert found.result is not None
    assert (found.result.p50_ms, found.result.speedup_over_best_single) == (8.0, 1.25)
    assert {name for name, row in rows.items() if row["in_final"]} == {
        "cpu", "npu", "fastest mix", "next mix", DEFAULT_PLATFORM,
    }  # fmt: skip
    assert [name for name, row in rows.items() if row["chosen"]] == ["fastest mix"]
    assert rows["fastest mix"]["transfers"] == 1
    assert found.baselines["cpu_ref"] == 100.0  # from the search: ten times as slow, it takes no part
    assert found.search is not None
    assert (found.search.method, found.search.placements, found.search.measured) == ("exhaustive", 27, 27)


def test_the_best_single_platform_is_in_the_final_however_slow_it_is() -> None:
    found, rows = conclude(search_with({"cpu cpu cpu": 20, "cpu npu npu": 2}, npu_cannot=0))
    assert found.result is not None
    assert rows["cpu"]["in_final"]
    assert not rows["cpu_ref"]["in_final"]
    assert found.result.speedup_over_best_single == pytest.approx(10.0)
    assert "faster by more than 1 %" in found.result.decision
    assert found.baselines["npu"] == "unsupported: unit 0 (t0)"


def test_what_was_too_slow_for_the_final_is_named_when_nothing_was_left_to_compare_with() -> None:
    found, _ = conclude(search_with({"cpu cpu cpu": 1, "npu npu npu": 5}))
    assert found.result is not None
    assert found.result.speedup_over_best_single == 1.0
    assert "npu: 5.0 times the time in the search" in found.result.decision
    assert "only placement" not in found.result.decision


def test_a_final_in_which_only_the_yardstick_runs_has_no_winner() -> None:
    search = search_with({"cpu cpu cpu": 1})
    search.workbench.broken_in_final.add(plan_id("cpu cpu cpu"))
    with pytest.raises(NoFeasiblePlacementError, match=r"in the final: cpu: device_gone: it was there"):
        hold_final(search, SilentObserver())


def test_one_that_fails_in_the_final_is_named_and_the_others_race_on() -> None:
    search = search_with({"cpu cpu cpu": 10, "npu npu npu": 12, "cpu npu npu": 8})
    search.workbench.broken_in_final.add(plan_id("cpu npu npu"))
    found, rows = conclude(search)
    assert found.result is not None
    assert {segment.platform for segment in found.segments} == {"cpu"}
    assert "fastest mix: failed in the final: device_gone" in found.result.decision
    assert rows["cpu"]["chosen"]


def test_nothing_that_works_is_an_error_that_says_why() -> None:
    search = search_with({})
    everywhere = {(0, name): REFUSED for name in ("cpu", "cpu_ref", "npu")}
    workbench = FakeWorkbench(UNITS.graph, everywhere)
    numerics, tensors = reference_of(UNITS.graph)
    finder = SupportFinder(workbench, tensors, numerics.gate, trusted=frozenset())
    bench = Bench(workbench, UNITS, numerics, tensors, TimingPlan(), finder, trusted=frozenset())
    optimizer = choose_optimizer(search.request, search.space, search.support, bench)
    finished_by = measure_until_done(optimizer, bench, None, SilentObserver())
    broken = Search(
        search.request, search.board, numerics, search.support, bench, optimizer, KeepsNothing(), finished_by
    )
    with pytest.raises(NoFeasiblePlacementError, match="there is no kernel for it"):
        hold_final(broken, SilentObserver())
