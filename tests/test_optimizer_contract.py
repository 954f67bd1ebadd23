"""What every optimizer promises, whichever it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from edgeplace import catalog
from edgeplace.measure.measurement import Failure, Measurement
from edgeplace.optimizers.base import Optimizer
from edgeplace.optimizers.rules import Rules
from edgeplace.placement.plan import Placement
from edgeplace.placement.segmentation import make_plan
from edgeplace.testing.cost_tables import CostTable
from edgeplace.testing.toy import toy_space

OPTIMIZERS: list[type[Optimizer]] = list(dict.fromkeys([*catalog.OPTIMIZERS, Rules]))
CASES = {
    "small": lambda: toy_space(4, ("cpu", "npu")),
    "branches": lambda: toy_space(5, ("cpu", "gpu", "npu"), form="branches"),
    "large": lambda: toy_space(14, ("cpu", "gpu", "npu"), form="residual"),
    "restricted": lambda: toy_space(
        7, ("cpu", "gpu", "npu"), allowed={0: ("cpu",), 3: ("gpu", "cpu"), 6: ("npu",)}
    ),
    "one unit": lambda: toy_space(1, ("cpu", "gpu", "npu")),
    "one platform": lambda: toy_space(5, ("cpu",)),
    "one unit on one platform": lambda: toy_space(1, ("cpu",)),
}

pytestmark = pytest.mark.parametrize("cls", OPTIMIZERS, ids=lambda cls: cls.name)


@pytest.fixture(params=CASES)
def space(request):
    return CASES[request.param]()


def made_up(space, **arguments) -> CostTable:
    return CostTable.made_up(space, seed=3, interaction=0.5, noise=0.02, **arguments)


def search(optimizer: Optimizer, board: CostTable, most: int = 200) -> list[list[Placement]]:
    """Run a search to its end (or to ``most`` measurements); the batches it asked for."""
    batches: list[list[Placement]] = []
    while sum(map(len, batches)) < most and (batch := optimizer.ask()):
        batches.append(list(batch))
        optimizer.tell([(placement, board.measure(placement)) for placement in batch])
    return batches


def test_asks_for_placements_of_the_space_and_never_twice(cls, space):
    board = made_up(space)
    batches = search(cls(space, seed=1, budget=40, hints=board.hints()), board)
    asked = [placement for batch in batches for placement in batch]
    assert asked
    assert len(set(asked)) == len(asked)
    assert all(placement in space for placement in asked)


@pytest.mark.parametrize("budget", [0, 1, 3, 17])
def test_keeps_to_the_budget(cls, space, budget):
    board = made_up(space)
    optimizer = cls(space, seed=1, budget=budget)
    search(optimizer, board)
    assert board.measured <= budget
    assert optimizer.finished_by != ""
    if board.measured < min(budget, space.size) and cls is not Rules:
        assert optimizer.finished_by == "converged"


def test_the_best_is_the_fastest_measured_one(cls, space):
    board = made_up(space)
    optimizer = cls(space, seed=1, budget=25, hints=board.hints())
    assert optimizer.best() is None
    search(optimizer, board)
    times = {placement: m.p50_ms for placement, m in optimizer.results}
    assert times[optimizer.best()] == min(times.values())


def test_a_failed_placement_is_never_the_best(cls):
    space = toy_space(5, ("cpu", "npu"))
    board = made_up(space, broken=frozenset({(2, "npu")}))
    optimizer = cls(space, budget=20)
    search(optimizer, board)
    assert any(m.failure for _, m in optimizer.results)
    assert optimizer.best().platforms[2] == "cpu"


@pytest.mark.parametrize("kind", ["crashed", "link_lost", "wrong_output"])
def test_survives_a_board_on_which_nothing_runs(cls, space, kind):
    optimizer = cls(space, seed=1, budget=30)
    while batch := optimizer.ask():
        optimizer.tell(
            [
                (p, Measurement(p.id, "plan", failure=Failure(kind, "no", platform=p.platforms[0])))
                for p in batch
            ]
        )
    assert optimizer.best() is None
    assert optimizer.finished_by != ""
    assert optimizer.ask() == ()


def test_a_segment_that_failed_twice_on_a_platform_is_not_tried_again(cls):
    space = toy_space(6, ("cpu", "npu"))
    board = made_up(space, broken=frozenset({(2, "npu"), (4, "npu")}))
    optimizer = cls(space, seed=1, budget=60, hints=board.hints())
    failed: dict[tuple[str, tuple[int, ...]], int] = {}
    while batch := optimizer.ask():
        for placement in batch:
            for segment in make_plan(space.unit_graph, placement).segments:
                assert failed.get((segment.platform, segment.units), 0) < 2
        results = [(placement, board.measure(placement)) for placement in batch]
        for placement, measurement in results:
            if measurement.failure is not None:
                segment = make_plan(space.unit_graph, placement).segments[measurement.failure.segment]
                key = (segment.platform, segment.units)
                failed[key] = failed.get(key, 0) + 1
        optimizer.tell(results)
    assert optimizer.best() is not None


def test_placements_with_one_plan_are_measured_once(cls):
    space = toy_space(6, ("cpu", "npu"))
    board = made_up(space)

    def key(placement: Placement) -> str:
        return "".join(name[0] for name in placement.platforms[::2])  # only every other unit matters

    optimizer = cls(space, seed=1, hints=board.hints(), plan_key=key)
    asked = [placement for batch in search(optimizer, board) for placement in batch]
    keys = [key(placement) for placement in asked]
    assert len(set(keys)) == len(keys) <= 8


def test_the_same_seed_and_records_give_the_same_search(cls, space):
    searches = []
    for _ in range(2):
        board = made_up(space)
        searches.append(search(cls(space, seed=5, budget=30, hints=board.hints()), board))
    assert searches[0] == searches[1]


def test_what_was_not_told_is_given_again(cls, space):
    board = made_up(space)
    optimizer = cls(space, seed=1, budget=20)
    batch = optimizer.ask()
    assert optimizer.ask() == batch
    optimizer.tell([(batch[0], board.measure(batch[0]))])
    rest = optimizer.ask()
    if len(batch) > 1:
        assert rest == batch[1:]


def test_a_measurement_from_elsewhere_is_taken_in_and_not_asked_for(cls):
    space = toy_space(4, ("cpu", "npu"))
    board = made_up(space)
    known = space.single("npu")
    optimizer = cls(space, seed=1, budget=20)
    optimizer.tell([(known, board.measure(known))])
    assert optimizer.best() == known
    asked = [placement for batch in search(optimizer, board) for placement in batch]
    assert known not in asked


def test_a_repeated_measurement_replaces_the_first(cls):
    space = toy_space(4, ("cpu", "npu"))
    board = made_up(space)
    optimizer = cls(space, seed=1, budget=20)
    search(optimizer, board)
    best = optimizer.best()
    optimizer.tell([(best, Measurement(best.id, "plan", failure=Failure("wrong_output", "hot")))])
    assert optimizer.best() != best
    assert [placement for placement, _ in optimizer.results].count(best) == 1


REPLAY = """
import json, sys
from test_optimizer_contract import CASES, OPTIMIZERS, made_up, search

name, case = sys.argv[1:]
cls = next(cls for cls in OPTIMIZERS if cls.name == name)
board = made_up(CASES[case](), broken=frozenset({(2, "npu")}))
batches = search(cls(board.space, seed=7, budget=30, hints=board.hints()), board)
print(json.dumps([[p.platforms for p in batch] for batch in batches]))
"""


def test_another_process_makes_the_same_search(cls):
    found = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.path.dirname(__file__)}
        output = subprocess.run(
            [sys.executable, "-c", REPLAY, cls.name, "large"],
            env=environment, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        found.append(json.loads(output))
    assert found[0] == found[1]


@pytest.mark.parametrize("kept", [0, 1, 5, 13, 22])
def test_replaying_any_prefix_gives_the_same_next_proposals(cls, kept):
    board = made_up(CASES["large"](), broken=frozenset({(2, "npu")}))
    whole = cls(board.space, seed=7, budget=30, hints=board.hints())
    batches = search(whole, board)
    records = {placement.id: measurement for placement, measurement in whole.results[:kept]}
    again = cls(board.space, seed=7, budget=30, hints=board.hints())
    for expected in batches:
        proposed = again.ask()
        assert list(proposed) == expected
        told = [(p, records[p.id]) for p in proposed if p.id in records]
        again.tell(told)
        if len(told) < len(proposed):
            assert list(again.ask()) == expected[len(told) :]
            break
