"""How good the optimizers are on made-up boards. Seeds are fixed and noise is made up, so the numbers are exact."""

from __future__ import annotations

import statistics

import pytest

from edgeplace.optimizers.base import Optimizer, SearchHints
from edgeplace.optimizers.exhaustive import Exhaustive
from edgeplace.optimizers.random_search import RandomSearch
from edgeplace.optimizers.rules import Rules
from edgeplace.optimizers.surrogate import Surrogate
from edgeplace.testing.cost_tables import CostTable
from edgeplace.testing.toy import toy_space

BUDGET = 60
SEEDS = range(10)


def regret(cls: type[Optimizer], board: CostTable, seed: int, hints: SearchHints | None) -> float:
    """How much slower than the fastest the best found placement truly is, as a share."""
    optimizer = cls(board.space, seed=seed, budget=BUDGET, hints=hints)
    while batch := optimizer.ask():
        optimizer.tell([(placement, board.measure(placement)) for placement in batch])
    best = optimizer.best()
    assert best is not None
    return board.regret(best)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("form", ["chain", "residual", "branches"])
def test_exhaustive_finds_the_fastest(form, seed):
    board = CostTable.made_up(
        toy_space(5, ("cpu", "npu"), form=form), seed=seed, interaction=1.0, broken=frozenset({(1, "npu")})
    )
    assert regret(Exhaustive, board, 0, None) == 0.0


def test_on_an_additive_board_the_seeds_already_hold_the_fastest():
    for seed in range(5):
        board = CostTable.made_up(toy_space(20, ("cpu", "npu")), seed=seed)
        assert regret(Surrogate, board, seed, board.hints()) == 0.0


@pytest.mark.slow(reason="ten searches of sixty measurements, each batch trains the surrogate")
def test_surrogate_with_unit_times_is_within_a_few_percent_of_the_fastest_of_2_to_the_20():
    """Boards where neighbours and hidden groups matter; 60 of 1048576 placements are measured."""
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        board = CostTable.made_up(
            toy_space(20, ("cpu", "npu")), seed=seed, interaction=0.5, hidden=0.5, noise=0.01
        )
        for cls in (Surrogate, Rules, RandomSearch):
            found.setdefault(cls.name, []).append(regret(cls, board, seed, board.hints()))
    assert max(found["surrogate"]) < 0.03
    assert statistics.mean(found["surrogate"]) < 0.01
    assert all(s <= r for s, r in zip(found["surrogate"], found["rules"], strict=True))
    assert statistics.mean(found["random"]) > 0.10
    assert all(s < r for s, r in zip(found["surrogate"], found["random"], strict=True))


@pytest.mark.slow(reason="ten searches of sixty measurements, each batch trains the surrogate")
def test_surrogate_that_sees_totals_only_beats_random_search_and_rules():
    """No unit times before the search, no segment times in it; 60 of 3 to the 16 placements are measured."""
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        board = CostTable.made_up(
            toy_space(16, ("cpu", "gpu", "npu"), form="residual"),
            seed=seed, interaction=0.5, hidden=0.8, noise=0.01,
        )  # fmt: skip
        board.tells_segments = False
        for cls in (Surrogate, Rules, RandomSearch):
            found.setdefault(cls.name, []).append(regret(cls, board, seed, None))
    assert all(s < r for s, r in zip(found["surrogate"], found["random"], strict=True))
    assert statistics.mean(found["surrogate"]) < 0.4 * statistics.mean(found["random"])
    assert statistics.mean(found["surrogate"]) < 0.4 * statistics.mean(found["rules"])


def test_surrogate_that_sees_segment_times_needs_no_unit_times():
    regrets = []
    for seed in range(5):
        board = CostTable.made_up(
            toy_space(16, ("cpu", "gpu", "npu"), form="residual"),
            seed=seed, interaction=0.5, hidden=0.8, noise=0.01,
        )  # fmt: skip
        regrets.append(regret(Surrogate, board, seed, None))
    assert statistics.mean(regrets) < 0.03
    assert max(regrets) < 0.08


def test_failures_do_not_hide_the_fastest_that_runs():
    """A platform that crashes on two units and takes short segments only; 2 to the 12 placements, 60 are measured."""
    regrets = []
    for seed in SEEDS:
        board = CostTable.made_up(
            toy_space(12, ("cpu", "npu")), seed=seed, interaction=0.5, noise=0.01,
            broken=frozenset({(3, "npu"), (8, "npu")}), longest_segment={"npu": 3},
        )  # fmt: skip
        regrets.append(regret(Surrogate, board, seed, board.hints()))
    assert max(regrets) < 0.02
