"""Support found by trying: what is tried, what is split, what is remembered. On a fake workbench."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_workbench import FakeWorkbench, error_of_db, reference_of

from edgeplace.graph.contract import contract
from edgeplace.graph.graph import UnitGraph
from edgeplace.measure.measurement import Failure
from edgeplace.measure.support import SupportFinder, Trial
from edgeplace.testing.toy import toy_graph, toy_unit_graph

REFUSED = Failure("unsupported", "there is no kernel for it", "compile")


class FakeMemory:
    """Trials of earlier searches, in a dictionary."""

    def __init__(self) -> None:
        self.trials: dict[tuple[str, str], Trial] = {}

    def get(self, segment_sha256: str, platform: str) -> Trial | None:
        return self.trials.get((segment_sha256, platform))

    def put(self, segment_sha256: str, platform: str, trial: Trial) -> None:
        self.trials[segment_sha256, platform] = trial


def finder_on(workbench: FakeWorkbench, **settings: object) -> SupportFinder:
    numerics, tensors = reference_of(workbench.graph)
    return SupportFinder(workbench, tensors, numerics.gate, **{"trusted": frozenset({"cpu"}), **settings})


def one_unit_of_six() -> UnitGraph:
    """Six nodes in one unit, any of which may be split off."""
    op_types = ("CONV_2D", *("RELU",) * 5)
    unit_graph = contract(toy_graph(6, op_types=op_types, elements=(16,) * 6), "unit")
    assert [unit.nodes for unit in unit_graph.units] == [(0, 1, 2, 3, 4, 5)]
    return unit_graph


def test_every_unit_is_tried_on_every_platform_and_timed() -> None:
    unit_graph = toy_unit_graph(3)
    said: list[str] = []
    workbench = FakeWorkbench(unit_graph.graph)
    support = finder_on(workbench, report=said.append).find(unit_graph, ("cpu", "npu"))
    assert workbench.attempted == [((unit,), name) for unit in range(3) for name in ("cpu", "npu")]
    assert said[:2] == ["node 0 on cpu", "node 0 on npu"]
    assert all(support.supported().values())
    assert support.unit_times_ms() == {(unit, name): 0.5 for unit in range(3) for name in ("cpu", "npu")}
    assert support.reasons() == {}


def test_wrong_outputs_rule_a_platform_out_and_say_how_wrong_they_are() -> None:
    unit_graph = toy_unit_graph(3)
    workbench = FakeWorkbench(
        unit_graph.graph, faults={(1, "npu"): error_of_db(20), (2, "npu"): error_of_db(40)}
    )
    support = finder_on(workbench).find(unit_graph, ("cpu", "npu"))
    trial = support.trials[1, "npu"]
    assert trial.failure is not None
    assert (trial.failure.kind, trial.failure.platform) == ("wrong_output", "npu")
    assert trial.agreement is not None
    assert trial.agreement.snr_db == pytest.approx(20.0, abs=0.01)
    assert not support.supported()[1, "npu"]
    assert support.supported()[2, "npu"]  # an error of 40 dB is within the limit
    assert (1, "npu") not in support.unit_times_ms()


def test_what_the_runtime_quietly_runs_elsewhere_is_not_supported() -> None:
    unit_graph = toy_unit_graph(2)
    elsewhere = frozenset({(0, "npu"), (0, "cpu")})
    support = finder_on(FakeWorkbench(unit_graph.graph, runs_elsewhere=elsewhere)).find(
        unit_graph, ("cpu", "npu")
    )
    assert support.reasons() == {(0, "npu"): "unsupported on npu: it ran on cpu"}


def test_a_unit_with_one_bad_node_is_split_around_it() -> None:
    unit_graph = one_unit_of_six()
    workbench = FakeWorkbench(unit_graph.graph, faults={(3, "npu"): REFUSED})
    support = finder_on(workbench).find(unit_graph, ("cpu", "npu"))
    assert [unit.nodes for unit in support.unit_graph.units] == [(0, 1, 2), (3,), (4, 5)]
    assert [support.supported()[unit, "npu"] for unit in range(3)] == [True, False, True]
    assert all(support.supported()[unit, "cpu"] for unit in range(3))
    assert {key: failure.kind for key, failure in support.node_failures.items()} == {
        (3, "npu"): "unsupported"
    }
    assert len(workbench.attempted) == len(set(workbench.attempted))  # nothing is tried twice


def test_a_unit_that_hangs_a_platform_is_not_bisected() -> None:
    # Every half of it might hang as well, each for a whole deadline.
    unit_graph = one_unit_of_six()
    hang = Failure("timeout", "no sign of life for 30 s", "invoke")
    workbench = FakeWorkbench(unit_graph.graph, faults={(3, "npu"): hang})
    support = finder_on(workbench).find(unit_graph, ("cpu", "npu"))
    assert support.unit_graph is unit_graph
    assert len(workbench.attempted) == 2
    assert support.reasons()[0, "npu"].startswith("timeout on npu")


def test_what_an_earlier_search_tried_is_not_tried_again() -> None:
    unit_graph = toy_unit_graph(3)
    memory = FakeMemory()
    broken = {(1, "npu"): REFUSED}
    first = finder_on(FakeWorkbench(unit_graph.graph, faults=broken), memory=memory).find(
        unit_graph, ("cpu", "npu")
    )
    assert len(memory.trials) == 6
    # The memory does not keep which nodes a file was cut from: the same file may stand elsewhere in another model.
    memory.trials = {key: replace(trial, nodes=()) for key, trial in memory.trials.items()}
    workbench = FakeWorkbench(unit_graph.graph, faults=broken)
    second = finder_on(workbench, memory=memory).find(unit_graph, ("cpu", "npu"))
    assert workbench.attempted == []
    assert second.trials == first.trials


def test_without_a_reference_units_are_tried_and_not_compared() -> None:
    unit_graph = toy_unit_graph(2)
    numerics, _ = reference_of(unit_graph.graph)
    workbench = FakeWorkbench(unit_graph.graph, faults={(1, "npu"): 1.0, (0, "npu"): REFUSED})
    finder = SupportFinder(workbench, {}, numerics.gate, trusted=frozenset())
    support = finder.find(unit_graph, ("npu",))
    assert support.supported() == {(0, "npu"): False, (1, "npu"): True}
    assert support.trials[1, "npu"].agreement is None
