"""The parts of the optimizers: gate, additive model, shortest path, features, feasibility, rules, how a search ends."""

from __future__ import annotations

import dataclasses
import itertools
import textwrap
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from edgeplace.graph.graph import UnitGraph
from edgeplace.measure.measurement import Failure, Measurement, Timing
from edgeplace.optimizers import candidates
from edgeplace.optimizers.additive import AdditiveCosts, Wiring, hinted_costs
from edgeplace.optimizers.base import FinishedBy, Optimizer, SearchHints
from edgeplace.optimizers.boosting import BoostedEnsemble
from edgeplace.optimizers.calibration import Calibration, SegmentTime
from edgeplace.optimizers.exhaustive import Exhaustive
from edgeplace.optimizers.feasibility import Feasibility
from edgeplace.optimizers.features import FeatureMap
from edgeplace.optimizers.gate import DEFAULT_THRESHOLD, choose_method
from edgeplace.optimizers.rules import rule_placements
from edgeplace.optimizers.shortest_path import fastest_per_unit, shortest_path
from edgeplace.optimizers.surrogate import GIVE_UP_AFTER, Surrogate
from edgeplace.placement.plan import Placement
from edgeplace.testing.cost_tables import CostTable
from edgeplace.testing.toy import toy_space


def timed(placement: Placement, ms: float) -> Measurement:
    return Measurement(placement.id, "plan", timing=Timing((ms,), ms, (ms, ms), ms, ms, ms))


def of(*platforms: str) -> Placement:
    return Placement(platforms)


class TestGate:
    @pytest.mark.parametrize(
        ("size", "threshold", "method"),
        [(255, 256, "exhaustive"), (256, 256, "surrogate"), (1, 1, "surrogate"), (2**70, 256, "surrogate"), (1, 0, "surrogate")],
    )  # fmt: skip
    def test_at_the_threshold_the_space_is_searched(self, size, threshold, method):
        assert choose_method(size, threshold) == method

    def test_the_default_threshold(self):
        assert DEFAULT_THRESHOLD == 256
        assert choose_method(255) == "exhaustive"


class TestAdditive:
    def test_by_hand(self):
        # 0 -> 1, 0 -> 2 -> 3, 1 -> 3: unit 0's tensor has two readers.
        space = toy_space(4, ("a", "b"), form="branches")
        wiring = Wiring(space)
        costs = AdditiveCosts(
            unit_ms=np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]]),
            fixed_ms=np.array([[0.0, 0.5], [0.25, 0.0]]),
            ms_per_byte=np.zeros((2, 2)),
            together_ms=np.zeros((4, 2)),
        )
        rows = wiring.rows([of("a", "a", "a", "a"), of("a", "b", "b", "a"), of("a", "b", "a", "a")])
        # Both readers of unit 0 on b: its tensor crosses once; back to a come two tensors.
        expected = [10.0, 1 + 20 + 30 + 4 + 0.5 + 2 * 0.25, 1 + 20 + 3 + 4 + 0.5 + 0.25]
        assert costs.predict_ms(wiring, rows).tolist() == expected

    def test_bytes_count(self):
        space = toy_space(2, ("a", "b"))
        wiring = Wiring(space)
        size_bytes = space.unit_graph.graph.tensors[1].size_bytes
        hints = SearchHints({(0, "a"): 1.0, (1, "b"): 1.0}, {("a", "b"): (0.5, 0.125)})
        costs = hinted_costs(wiring, hints)
        assert costs is not None
        assert costs.predict_ms(wiring, wiring.rows([of("a", "b")]))[0] == 2.5 + 0.125 * size_bytes

    def test_what_was_not_timed_counts_as_the_slowest_known(self):
        wiring = Wiring(toy_space(3, ("a", "b", "c")))
        hints = SearchHints({(0, "a"): 1.0, (0, "b"): 4.0, (1, "a"): 2.0}, {("a", "b"): (1.0, 0.0)})
        costs = hinted_costs(wiring, hints)
        assert costs is not None
        assert costs.unit_ms.tolist() == [[1.0, 4.0, 4.0], [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]]
        assert costs.fixed_ms.tolist() == [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]

    def test_without_unit_times_there_is_none(self):
        assert hinted_costs(Wiring(toy_space()), SearchHints()) is None

    def test_replicated_producers_carry_nothing(self):
        space = toy_space(3, ("a", "b"))
        graph = space.unit_graph
        units = tuple(dataclasses.replace(unit, id=unit.id - 1) for unit in graph.units[1:])
        smaller = UnitGraph(graph.graph, "op", units, frozenset({0}), ((1,), ()), ((), (0,)))
        wiring = Wiring(dataclasses.replace(space, unit_graph=smaller, allowed=space.allowed[1:]))
        assert [(item.producer, item.consumers) for item in wiring.carried] == [(0, (1,))]


class TestShortestPath:
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("form", ["chain", "residual", "branches"])
    @pytest.mark.parametrize("platforms", [("a", "b"), ("a", "b", "c")])
    def test_equals_trying_everything(self, form, platforms, seed):
        space = toy_space(7, platforms, form=form, allowed={2: platforms[:1], 5: platforms[::-1]})
        board = CostTable.made_up(space, seed=seed, interaction=1.0)
        found = shortest_path(board.wiring, board.costs)
        times = board.costs.predict_ms(board.wiring, candidates.all_rows(board.wiring))
        assert found.exact
        assert found.cost_ms == pytest.approx(times.min())
        assert board.true_ms(found.placement) == pytest.approx(times.min())

    def test_a_beam_says_that_it_is_one(self):
        board = CostTable.made_up(toy_space(12, ("a", "b"), form="branches"), seed=0)
        narrow = shortest_path(board.wiring, board.costs, max_states=2)
        wide = shortest_path(board.wiring, board.costs)
        assert (narrow.exact, wide.exact) == (False, True)
        assert narrow.cost_ms >= wide.cost_ms
        assert board.true_ms(narrow.placement) == pytest.approx(narrow.cost_ms)

    def test_greedy_ignores_hand_overs(self):
        board = CostTable.made_up(toy_space(6, ("a", "b"), allowed={1: ("b",)}), seed=1)
        expected = np.where(board.wiring.allowed, board.costs.unit_ms, np.inf).argmin(axis=1)
        assert fastest_per_unit(board.wiring, board.costs) == board.wiring.placement(expected)


class TestRules:
    def test_all_of_them(self):
        space = toy_space(4, ("cpu", "npu"), allowed={2: ("cpu",)})
        hints = SearchHints(
            {(unit, name): ms for unit in range(4) for name, ms in (("cpu", 2.0), ("npu", 1.0))}
        )
        said = {item.rule: item.placement for item in rule_placements(space, hints)}
        assert said == {
            "single:cpu": of("cpu", "cpu", "cpu", "cpu"),
            "prefer:npu": of("npu", "npu", "cpu", "npu"),
            "prefix:npu": of("npu", "npu", "cpu", "cpu"),
            "shortest-path": of("npu", "npu", "cpu", "npu"),
            "greedy": of("npu", "npu", "cpu", "npu"),
        }

    def test_without_unit_times_only_those_that_need_none(self):
        said = rule_placements(toy_space(3, ("cpu", "npu"), allowed={0: ("cpu",)}), SearchHints())
        assert [item.rule for item in said] == ["single:cpu", "prefer:npu"]


class TestCalibration:
    def test_it_learns_what_neighbours_do(self):
        board = CostTable.made_up(toy_space(8, ("a", "b")), seed=2, interaction=1.0)
        rows = candidates.all_rows(board.wiring)
        times = board.all_true_ms(rows)
        chance = np.random.Generator(np.random.PCG64(0))
        known = chance.choice(len(rows), size=60, replace=False)
        calibration = Calibration(board.wiring, board.hints(), usual_ms=1.0)
        before = np.abs(calibration.prior.predict_ms(board.wiring, rows) / times - 1).mean()
        fitted = calibration.fit(rows[known], times[known])
        after = np.abs(fitted.predict(rows)[0] / times - 1).mean()
        assert after < 0.2 * before

    def test_left_out_predictions_are_those_of_a_fit_without_that_sample(self):
        board = CostTable.made_up(toy_space(6, ("a", "b")), seed=2, interaction=1.0)
        rows = candidates.all_rows(board.wiring)[::7]
        times = board.all_true_ms(rows)
        calibration = Calibration(board.wiring, board.hints(), usual_ms=1.0)
        whole = calibration.fit(rows, times)
        for index in range(len(rows)):
            rest = np.delete(np.arange(len(rows)), index)
            alone = calibration.fit(rows[rest], times[rest]).predict(rows[[index]])[0]
            assert whole.left_out_ms[index] == pytest.approx(alone[0])

    def test_left_out_means_without_the_segments_seen_there_alone(self):
        board = CostTable.made_up(toy_space(6, ("a", "b")), seed=2, interaction=1.0)
        rows = board.wiring.rows([of(*"aaabbb"), of(*"abbbbb"), of(*"bbbbbb")])
        times = board.all_true_ms(rows)
        segments = [
            SegmentTime((0, 1, 2), 0, 3.0, 0),
            SegmentTime((3, 4, 5), 1, 2.0, None),
            SegmentTime((1, 2, 3, 4, 5), 1, 4.0, 1),
        ]
        calibration = Calibration(board.wiring, board.hints(), usual_ms=1.0)
        whole = calibration.fit(rows, times, segments)
        moved = dataclasses.replace(segments[2], sample=0)
        alone = calibration.fit(rows[1:], times[1:], [segments[1], moved]).predict(rows[:1])[0]
        assert whole.left_out_ms[0] == pytest.approx(alone[0])

    def test_segment_times_teach_what_totals_cannot_tell_apart(self):
        board = CostTable.made_up(toy_space(6, ("a", "b")), seed=2)
        row = board.wiring.rows([of(*"aaabbb")])
        segments = [
            SegmentTime((0, 1, 2), 0, float(board.costs.unit_ms[:3, 0].sum()), 0),
            SegmentTime((3, 4, 5), 1, float(board.costs.unit_ms[3:, 1].sum()), 0),
        ]
        calibration = Calibration(board.wiring, SearchHints(), usual_ms=10.0)
        other = board.wiring.rows([of(*"aaaaaa")])
        known, unknown = (
            calibration.fit(row, board.all_true_ms(row), told).predict(other)[1][0] for told in (segments, [])
        )
        assert known < unknown

    def test_nothing_measured_is_the_prior(self):
        board = CostTable.made_up(toy_space(6, ("a", "b")), seed=2)
        calibration = Calibration(board.wiring, board.hints(), usual_ms=1.0)
        rows = candidates.all_rows(board.wiring)
        fitted = calibration.fit(rows[:0], np.zeros(0))
        assert fitted.predict(rows)[0] == pytest.approx(board.all_true_ms(rows))

    def test_draws_agree_where_it_was_measured_and_differ_elsewhere(self):
        board = CostTable.made_up(toy_space(8, ("a", "b")), seed=2)
        rows = candidates.all_rows(board.wiring)[:6]
        calibration = Calibration(board.wiring, board.hints(), usual_ms=1.0)
        fitted = calibration.fit(rows, board.all_true_ms(rows))
        chance = np.random.Generator(np.random.PCG64(0))
        far = candidates.all_rows(board.wiring)[-1:]
        drawn = [fitted.draw(chance) for _ in range(200)]
        near_ms = [costs.predict_ms(board.wiring, rows[:1])[0] for costs in drawn]
        far_ms = [costs.predict_ms(board.wiring, far)[0] for costs in drawn]
        assert np.std(near_ms) < 0.3 * np.std(far_ms)
        assert np.std(far_ms) == pytest.approx(fitted.predict(far)[1][0], rel=0.2)


class TestFeatures:
    def test_groups_are_counted_as_one_would_by_eye(self):
        wiring = Wiring(toy_space(6, ("a", "b"), form="residual"))
        features = FeatureMap(wiring)
        rows = wiring.rows([of(*"aaaaaa"), of(*"abbaaa"), of(*"ababab"), of(*"aabbbb")])
        groups, largest = features._groups(rows)
        assert groups.tolist() == [1, 2, 6, 2]
        assert largest.tolist() == [6, 4, 1, 4]

    def test_different_placements_differ(self):
        board = CostTable.made_up(toy_space(6, ("a", "b", "c"), allowed={1: ("a",)}), seed=0)
        rows = candidates.all_rows(board.wiring)
        features = FeatureMap(board.wiring).rows(rows, board.costs)
        assert len(np.unique(features, axis=0)) == len(rows)
        assert np.isfinite(features).all()
        assert features[:, -1] == pytest.approx(board.all_true_ms(rows))


class TestCandidates:
    def test_all_rows_are_the_space_in_its_order(self):
        space = toy_space(4, ("a", "b", "c"), allowed={1: ("c", "a"), 3: ("b",)})
        wiring = Wiring(space)
        assert [wiring.placement(row) for row in candidates.all_rows(wiring)] == list(space)

    def test_flips_change_one_unit(self):
        space = toy_space(4, ("a", "b", "c"), allowed={1: ("a",)})
        wiring = Wiring(space)
        row = wiring.rows([of("a", "a", "b", "c")])[0]
        made = candidates.flips(wiring, row)
        assert len(made) == 6
        assert ((made != row).sum(axis=1) == 1).all()

    def test_everything_made_is_in_the_space(self):
        space = toy_space(9, ("a", "b", "c"), allowed={1: ("a",), 4: ("b", "c")})
        wiring = Wiring(space)
        chance = np.random.Generator(np.random.PCG64(1))
        fresh = candidates.random_rows(wiring, 50, chance)
        made = [
            fresh,
            candidates.run_flips(wiring, fresh[0], 50, chance),
            candidates.crossovers(wiring, fresh, 50, chance),
            candidates.flips(wiring, fresh[1]),
        ]
        rows = candidates.unique_rows(made)
        assert all(wiring.placement(row) in space for row in rows)
        assert len({row.tobytes() for row in rows}) == len(rows)
        assert rows[0].tolist() == fresh[0].tolist()


class TestBoosting:
    def test_learns_and_repeats_itself(self):
        chance = np.random.Generator(np.random.PCG64(0))
        features = chance.integers(0, 2, size=(120, 6)).astype(float)
        target = features[:, 0] * features[:, 1] - features[:, 2]
        first = BoostedEnsemble(features, target, seed=3)
        mean, spread = first.predict(features)
        assert np.abs(mean - target).mean() < 0.15
        assert (spread >= 0).all()
        assert np.array_equal(BoostedEnsemble(features, target, seed=3).predict(features)[0], mean)


class TestFeasibility:
    def failed(self, placement: Placement, segment: int | None, platform: str | None = None) -> Measurement:
        return Measurement(placement.id, "p", failure=Failure("crashed", "m", "", segment, platform))

    def test_two_failures_of_one_segment_strike_it(self):
        feasibility = Feasibility(toy_space(4, ("cpu", "npu")))
        for placement in (of("cpu", "npu", "npu", "cpu"), of("cpu", "npu", "npu", "cpu")):
            assert feasibility.allows(of("cpu", "npu", "npu", "cpu"))
            feasibility.tell(placement, self.failed(placement, 1))
        assert not feasibility.allows(of("cpu", "npu", "npu", "cpu"))
        assert feasibility.allows(of("cpu", "npu", "npu", "npu"))  # another segment
        assert feasibility.allows(of("cpu", "npu", "cpu", "cpu"))

    def test_a_failure_without_a_name_strikes_only_a_lone_suspect(self):
        feasibility = Feasibility(toy_space(4, ("cpu", "npu")))
        lone, two = of("cpu", "npu", "cpu", "cpu"), of("npu", "cpu", "npu", "cpu")
        for placement in (lone, lone, two, two):
            feasibility.tell(placement, self.failed(placement, None, "npu"))
        assert not feasibility.allows(lone)
        assert feasibility.allows(two)

    def test_a_lost_link_says_nothing(self):
        space = toy_space(3, ("cpu", "npu"))
        feasibility = Feasibility(space)
        placement = of("npu", "npu", "npu")
        for _ in range(3):
            feasibility.tell(placement, Measurement(placement.id, "p", failure=Failure("link_lost", "m")))
        assert feasibility.allows(placement)
        assert feasibility.probability(Wiring(space).rows([placement])).tolist() == [1.0]

    def test_the_guilty_unit_is_found_by_comparison(self):
        space = toy_space(5, ("cpu", "npu"))
        wiring, feasibility = Wiring(space), Feasibility(space)
        for bits in itertools.product(("cpu", "npu"), repeat=5):
            if bits.count("npu") == 2:
                placement = of(*bits)
                failure = self.failed(placement, None, "npu") if bits[3] == "npu" else timed(placement, 1.0)
                feasibility.tell(placement, failure)
        alone = wiring.rows([of(*("npu" if unit == u else "cpu" for unit in range(5))) for u in range(5)])
        chances = feasibility.probability(alone)
        assert chances.argmin() == 3
        assert chances[3] < 0.2
        assert np.delete(chances, 3).min() > 0.9

    def test_what_holds_a_set_that_failed_is_not_trusted(self):
        space = toy_space(6, ("cpu", "npu"))
        feasibility, wiring = Feasibility(space), Wiring(space)
        placement = of("cpu", "npu", "npu", "cpu", "cpu", "cpu")
        for ran in (
            of("cpu", "npu", "cpu", "cpu", "cpu", "cpu"),
            of("cpu", "cpu", "npu", "cpu", "cpu", "cpu"),
        ):
            feasibility.tell(ran, timed(ran, 1.0))
        feasibility.tell(placement, self.failed(placement, 1))
        larger, part = (
            of("npu", "npu", "npu", "npu", "cpu", "cpu"),
            of("npu", "npu", "cpu", "npu", "cpu", "cpu"),
        )
        chances = feasibility.probability(wiring.rows([larger, part]))
        assert chances[0] < 0.15
        assert chances[1] > 0.9


class TestHowASearchEnds:
    def end(self, optimizer, measure) -> int:
        count = 0
        while batch := optimizer.ask():
            count += len(batch)
            optimizer.tell([(placement, measure(placement)) for placement in batch])
        return count

    def test_a_small_space_ends_when_it_is_measured(self):
        for cls in (Exhaustive, Surrogate):
            board = CostTable.made_up(toy_space(3, ("cpu", "npu")), seed=0)
            optimizer = cls(board.space)
            count = self.end(optimizer, board.measure)
            assert optimizer.finished_by in ("space", "converged")
            assert count == 8 or optimizer.finished_by == "converged"

    def test_a_spent_budget_is_said(self):
        board = CostTable.made_up(toy_space(10, ("cpu", "npu")), seed=0, interaction=0.8)
        for cls in (Exhaustive, Surrogate):
            optimizer = cls(board.space, budget=10)
            assert self.end(optimizer, board.measure) == 10
            assert optimizer.finished_by == "budget"

    def test_the_surrogate_stops_when_nothing_better_is_predicted(self):
        board = CostTable.made_up(toy_space(16, ("cpu", "npu")), seed=0)
        optimizer = Surrogate(board.space, hints=board.hints())
        assert self.end(optimizer, board.measure) < 200
        assert optimizer.finished_by == "converged"

    def test_the_surrogate_gives_up_when_nothing_runs(self):
        space = toy_space(16, ("cpu", "npu"))

        def fail(placement: Placement) -> Measurement:
            return Measurement(placement.id, "p", failure=Failure("timeout", "m"))

        optimizer = Surrogate(space)
        assert GIVE_UP_AFTER <= self.end(optimizer, fail) < 2 * GIVE_UP_AFTER
        assert optimizer.finished_by == "infeasible"


class TestMadeUpBoards:
    @pytest.mark.parametrize("form", ["chain", "residual", "branches"])
    def test_the_shares_are_the_whole(self, form):
        board = CostTable.made_up(
            toy_space(8, ("a", "b", "c"), form=form), seed=1, interaction=0.5, hidden=0.5, noise=0.05
        )
        for index in range(0, board.space.size, 97):
            timing = board.measure(board.space.at(index)).timing
            assert sum(timing.segment_ms) + sum(timing.handover_ms) == pytest.approx(timing.p50_ms)

    def test_noise_is_the_same_every_time_it_is_made_up(self):
        placement = toy_space(6).at(5)
        first, second = (CostTable.made_up(toy_space(6), seed=1, noise=0.1) for _ in range(2))
        assert first.measure(placement) == second.measure(placement)
        assert first.measure(placement) != CostTable.made_up(toy_space(6), seed=1, noise=0.1).measure(
            placement
        )

    def test_the_fastest_of_a_small_space_runs(self):
        board = CostTable.made_up(toy_space(6, ("a", "b")), seed=1, broken=frozenset({(0, "a"), (3, "b")}))
        assert board.failure(board.fastest) is None
        assert board.regret(board.fastest) == 0.0
        assert all(board.failure(p) or board.regret(p) >= 0 for p in board.space)

    def test_the_best_known_of_a_large_space_is_that_of_the_shortest_path_or_better(self):
        board = CostTable.made_up(toy_space(18, ("a", "b")), seed=1, interaction=0.5, hidden=1.0)
        path = shortest_path(board.wiring, board.costs).placement
        assert board.true_ms(board.fastest) <= board.true_ms(path)


def test_the_example_of_the_guide_keeps_the_contract():
    guide = Path(__file__).resolve().parent.parent / "docs" / "adding-an-optimizer.md"
    code = textwrap.dedent(guide.read_text().split("```python\n")[1].split("```")[0])
    names = {"Optimizer": Optimizer, "Iterable": Iterable, "Placement": Placement, "FinishedBy": FinishedBy}
    exec(code, names)
    board = CostTable.made_up(toy_space(5, ("cpu", "npu"), allowed={1: ("cpu",)}), seed=0)
    optimizer = names["Alternating"](board.space)
    asked = list(optimizer.ask())
    assert len(set(asked)) == len(asked) > 2
    optimizer.tell([(placement, board.measure(placement)) for placement in asked])
    assert optimizer.ask() == ()
    assert optimizer.finished_by == "list"
    assert optimizer.best() in asked
