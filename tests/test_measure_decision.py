"""The rule that picks winners, held to its promise on synthetic and recorded run times.

Promise, at the default numbers of rounds and runs: false winners in at most 5 % of the finals, a true gain of 5 % found in at
least 90 %. A contender that is exactly 1 % faster (the margin) must not win more often either: that is the hardest case.
"""

from __future__ import annotations

import functools

import measure_noise
import numpy as np
import pytest
from measure_noise import RECORDED, SYNTHETIC, Noise, rounds_of

from edgeplace.measure.decision import (
    DEFAULT_MARGIN,
    DEFAULT_ROUNDS,
    DEFAULT_RUNS_PER_ROUND,
    MAX_ROUNDS,
    MIN_ROUNDS,
    decide,
    final_rounds,
    pick_winner,
)

SERIES = 1000
RECORDED_SERIES = 250
"""Windows of each recording; they overlap, so more of them would say nothing new."""

CONTENDED = "face_detection_2_threads"
"""Recorded on two cores that other work kept busy: single runs take up to ten times the median."""

QUIET_ENOUGH = (*SYNTHETIC, *(name for name in RECORDED if name != CONTENDED))


@functools.lru_cache(maxsize=1)
def default_finals(family: str) -> Noise:
    """Finals with the default numbers: for a recorded model, the rounds that a model so fast gets."""
    if family in SYNTHETIC:
        return rounds_of(family, series=SERIES, rounds=DEFAULT_ROUNDS, runs=DEFAULT_RUNS_PER_ROUND, seed=7)
    sample = rounds_of(family, series=1, rounds=100, runs=DEFAULT_RUNS_PER_ROUND, seed=7)
    rounds = final_rounds([float(np.median(sample))] * 2)
    return rounds_of(family, series=RECORDED_SERIES, rounds=rounds, runs=DEFAULT_RUNS_PER_ROUND, seed=7)


@functools.lru_cache(maxsize=1)
def default_upper_ends(family: str) -> Noise:
    """Upper end of the interval in each final of equal plans."""
    finals = default_finals(family)
    return np.array([decide(first, second).ci95[1] for first, second in finals])


def share_of_winners(upper_ends: Noise, speed: float) -> float:
    """How often the first plan wins when its times are ``speed`` times what the noise made of equal plans.

    Ratio and interval scale with the times (:func:`test_decision_scales_with_the_contender`).
    """
    return float(np.mean(upper_ends * speed < 1 - DEFAULT_MARGIN))


def test_decision_scales_with_the_contender() -> None:
    for first, second in default_finals("bursts")[:40]:
        equal = decide(first, second)
        for speed in (0.95, 0.99):
            found = decide(first * speed, second)
            assert found.ci95 == pytest.approx((equal.ci95[0] * speed, equal.ci95[1] * speed))
            assert found.faster == (found.ci95[1] < 1 - DEFAULT_MARGIN)


@pytest.mark.parametrize("family", QUIET_ENOUGH)
def test_rule_keeps_its_promise(family: str) -> None:
    upper_ends = default_upper_ends(family)
    assert share_of_winners(upper_ends, 1.0) <= 0.05
    assert share_of_winners(upper_ends, 0.95) >= 0.90


@pytest.mark.parametrize("family", SYNTHETIC)
def test_gain_of_just_the_margin_is_not_a_winner(family: str) -> None:
    assert share_of_winners(default_upper_ends(family), 1 - DEFAULT_MARGIN) <= 0.05


@pytest.mark.parametrize("rounds", [DEFAULT_ROUNDS, MAX_ROUNDS])
def test_busy_machine_makes_no_more_false_winners(rounds: int) -> None:
    finals = rounds_of(CONTENDED, series=RECORDED_SERIES, rounds=rounds, runs=DEFAULT_RUNS_PER_ROUND, seed=7)
    for first, second in ((0, 1), (1, 0)):
        wins = sum(decide(final[first], final[second]).faster for final in finals)
        assert wins / len(finals) <= 0.05


def test_fast_model_on_a_busy_machine_gets_a_long_final() -> None:
    times = rounds_of(CONTENDED, series=1, rounds=100, runs=DEFAULT_RUNS_PER_ROUND, seed=7)
    assert final_rounds([float(np.median(times))] * 2) == MAX_ROUNDS


def test_recorded_times_are_there() -> None:
    assert CONTENDED in RECORDED
    assert len(RECORDED) >= 3
    for name in RECORDED:
        times = np.load(measure_noise.RECORDED_DIR / f"{name}.npz", allow_pickle=False)["times_ns"]
        assert times.shape[0] == 2
        assert times.min() > 0


def rounds_at(speed: float, *, rounds: int = DEFAULT_ROUNDS, seed: int = 0, spread: float = 0.01) -> Noise:
    noise = np.random.default_rng(seed).normal(0, spread, (rounds, DEFAULT_RUNS_PER_ROUND))
    return speed * np.exp(noise)


def test_clear_gain_wins_and_says_by_how_much() -> None:
    decision = decide(rounds_at(0.9, seed=1), rounds_at(1.0, seed=2))
    assert decision.faster
    assert decision.ratio == pytest.approx(0.9, abs=0.01)
    assert decision.ci95[0] <= decision.ratio <= decision.ci95[1] < 0.99
    assert decision.rounds == DEFAULT_ROUNDS
    assert decision.reason.startswith("faster by more than 1 %: ratio 0.9")


def test_gain_within_the_margin_does_not_win() -> None:
    decision = decide(rounds_at(0.995, seed=1, spread=0.001), rounds_at(1.0, seed=2, spread=0.001))
    assert not decision.faster
    assert decision.ci95[1] < 1
    assert decision.reason.startswith("not faster by more than 1 % beyond doubt")


def test_slower_is_called_slower() -> None:
    decision = decide(rounds_at(1.2, seed=1), rounds_at(1.0, seed=2))
    assert not decision.faster
    assert decision.reason.startswith("slower")


def test_too_few_rounds_decide_nothing() -> None:
    few = MIN_ROUNDS - 1
    decision = decide(rounds_at(0.5, rounds=few), rounds_at(1.0, rounds=few))
    assert not decision.faster
    assert decision.reason == f"{few} rounds are too few to decide (at least {MIN_ROUNDS})"


def test_winner_is_the_contender_that_proved_faster() -> None:
    verdict = pick_winner(
        {"split": rounds_at(0.8, seed=1), "cpu": rounds_at(1.0, seed=2), "npu": rounds_at(1.5, seed=3)},
        ["cpu", "npu"],
    )
    assert verdict.winner == "split"
    assert not verdict.is_single
    assert verdict.best_single == "cpu"
    assert verdict.p50_ms["npu"] == pytest.approx(1.5, abs=0.02)
    assert verdict.decisions["split"].ratio == pytest.approx(0.8, abs=0.01)
    assert verdict.reason == verdict.decisions["split"].reason


def test_without_proof_the_best_single_platform_is_the_answer() -> None:
    verdict = pick_winner(
        {"split": rounds_at(0.999, seed=1), "npu": rounds_at(1.5, seed=3), "cpu": rounds_at(1.0, seed=2)},
        ["npu", "cpu"],
    )
    assert (verdict.winner, verdict.is_single) == ("cpu", True)
    assert "split: not faster by more than 1 %" in verdict.reason


def test_contender_must_beat_every_single_platform() -> None:
    """The decision kept is the one against the hardest opponent, not against the slowest."""
    verdict = pick_winner(
        {"split": rounds_at(1.0, seed=1), "gpu": rounds_at(3.0, seed=2), "cpu": rounds_at(1.0, seed=3)},
        ["gpu", "cpu"],
    )
    assert verdict.is_single
    assert verdict.decisions["split"].ratio == pytest.approx(1.0, abs=0.01)


def test_single_platforms_alone_have_a_best_one() -> None:
    verdict = pick_winner({"cpu": rounds_at(1.0), "npu": rounds_at(0.7)}, ["cpu", "npu"])
    assert (verdict.winner, verdict.reason) == ("npu", "there is no other placement to compare")


def test_several_contenders_are_held_to_a_stricter_interval() -> None:
    contender, single = rounds_at(0.9, seed=1, spread=0.05), rounds_at(1.0, seed=2, spread=0.05)
    alone = pick_winner({"a": contender, "cpu": single}, ["cpu"]).decisions["a"]
    among_five = pick_winner(
        {"a": contender, **{name: rounds_at(2.0) for name in "bcde"}, "cpu": single},
        ["cpu"],
    ).decisions["a"]
    assert among_five.ci95[1] > alone.ci95[1]
    assert "99 % interval" in among_five.reason


def test_interval_of_a_few_wildly_different_rounds_is_widened() -> None:
    rng = np.random.default_rng(9)
    wild, calm = np.exp(rng.normal(0, 0.2, (60, 1))), np.ones((60, 1))
    decision = decide(0.8 * wild, calm)
    again = decide(np.concatenate([0.8 * wild] * 2), np.concatenate([calm] * 2))
    assert "widened 2." in decision.reason
    assert "widened" not in again.reason


def test_many_equal_contenders_together_make_few_false_winners() -> None:
    finals = 150
    rng = np.random.default_rng(5)
    false = 0
    for _ in range(finals):
        noise = np.exp(rng.normal(0, 0.05, (5, DEFAULT_ROUNDS, DEFAULT_RUNS_PER_ROUND)))
        noise[:4] *= 1 - DEFAULT_MARGIN
        times = dict(zip("abcds", noise, strict=True))
        false += not pick_winner(times, ["s"]).is_single
    assert false / finals <= 0.05


def test_drift_is_corrected_for_the_place_each_plan_really_had() -> None:
    """Four plans ran in each round; one of them, the runtime's default, does not compete."""
    slots = np.arange(4 * 40).reshape(40, 4)
    times = np.exp(0.02 * slots / 4)[:, :, None]
    names = ["split", "default", "gpu", "cpu"]
    rounds = {name: times[:, place] for place, name in enumerate(names)}
    competing = {name: rounds[name] for name in ("split", "gpu", "cpu")}
    verdict = pick_winner(competing, ["gpu", "cpu"], alternating=False, order=names)
    assert verdict.decisions["split"].ratio == pytest.approx(1.0)
    assert pick_winner(competing, ["gpu", "cpu"]).decisions["split"].ratio < 0.995


@pytest.mark.parametrize("singles", [[], ["npu"]])
def test_final_without_its_single_platforms_is_refused(singles: list[str]) -> None:
    with pytest.raises(ValueError, match="single platforms without rounds"):
        pick_winner({"split": rounds_at(1.0)}, singles)


@pytest.mark.parametrize(
    ("p50_ms", "budget_s", "rounds"),
    [
        ([100.0, 100.0], None, DEFAULT_ROUNDS),  # 1 s a round: long enough anyway
        ([10.0, 10.0], None, 50),  # 0.1 s a round: 5 s
        ([0.1, 0.1], None, MAX_ROUNDS),
        ([0.0], None, MAX_ROUNDS),
        ([100.0, 100.0], 20.0, 20),
        ([100.0, 100.0], 1.0, MIN_ROUNDS),
    ],
)
def test_rounds_are_fixed_before_the_final(p50_ms: list[float], budget_s: float | None, rounds: int) -> None:
    budget = {} if budget_s is None else {"budget_s": budget_s}
    assert final_rounds(p50_ms, **budget) == rounds
