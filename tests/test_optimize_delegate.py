"""Whole searches with an external delegate that works, lies, refuses, crashes, hangs or exits.

The delegate is real (compiled C, loaded by the runtime in the agent's worker); what it does is chosen by its options.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from delegate_build import build_test_delegate
from optimize_runs import short_request

from edgeplace import controller
from edgeplace.delegate_map import DelegateMap, load_map
from edgeplace.store import Store


@pytest.fixture(scope="module")
def delegate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_test_delegate(tmp_path_factory.mktemp("delegate"))


@pytest.fixture
def optimized(
    delegate: Path, tmp_path: Path, model_file: Callable[[str], Path]
) -> Callable[..., controller.OptimizeOutcome]:
    def run(options: str, **changes: object) -> controller.OptimizeOutcome:
        platform = f"acc=delegate:{delegate},{options}"
        request = short_request(
            model_file("multi_output"), tmp_path, "cpu1", platform, granularity="op", **changes
        )
        return controller.optimize(request)

    return run


def failures_of(found: DelegateMap, platform: str = "acc") -> set[str]:
    return {rejection.failure for rejection in found.rejected if rejection.platform == platform}


def test_a_delegate_that_works_is_measured_and_only_the_nodes_it_claims_go_there(
    optimized: Callable[..., controller.OptimizeOutcome],
) -> None:
    found = optimized("ops=TANH,mode=right").map
    # multi_output is CONV_2D, SPLIT, TANH, RELU, ADD: one unit can go to two platforms, the others to the CPU only.
    assert found.search is not None
    assert found.search.placements == 2
    assert found.search.measured == 2
    assert found.search.failed == 0
    assert failures_of(found) == {"unsupported"}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ("ops=TANH,mode=wrong,offset=1", "wrong_output"),
        ("ops=TANH,mode=nan", "wrong_output"),
        ("ops=TANH,mode=refuse_nodes", "prepare_failed"),
        ("ops=TANH,mode=fail_invoke", "invoke_failed"),
        ("ops=TANH,mode=crash_invoke", "crashed"),
        ("ops=TANH,mode=exit_invoke", "exited"),
        ("ops=TANH,mode=oom_invoke", "out_of_memory"),
    ],
)
def test_what_a_delegate_does_wrong_is_a_failure_of_its_kind_and_the_search_goes_on(
    optimized: Callable[..., controller.OptimizeOutcome], options: str, kind: str
) -> None:
    found = optimized(options).map
    assert kind in failures_of(found)
    assert [segment.platform for segment in found.segments] == ["cpu1"]
    assert found.search is not None
    assert found.search.placements == 1  # found by trying the unit alone: no placement has it there
    assert found.result is not None
    assert found.result.p50_ms > 0


def test_a_delegate_that_crashes_whatever_it_is_given_is_left_out_with_the_reason(
    optimized: Callable[..., controller.OptimizeOutcome],
) -> None:
    found = optimized("ops=TANH,mode=crash_prepare").map
    assert found.platforms_left_out["acc"].startswith("crashed: the worker was ended by SIGSEGV")
    assert [segment.platform for segment in found.segments] == ["cpu1"]


def test_a_delegate_that_hangs_costs_its_deadline_and_no_more(
    optimized: Callable[..., controller.OptimizeOutcome],
) -> None:
    found = optimized("ops=TANH,mode=hang_invoke", run_deadline_s=0.5).map
    assert "timeout" in failures_of(found)
    assert [segment.platform for segment in found.segments] == ["cpu1"]


def test_units_that_a_delegate_takes_one_by_one_and_not_together_do_not_fall_back_silently(
    delegate: Path, tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    # TANH, RELU and ADD alone are one node each, which the delegate takes. Of two or three together it takes one only.
    request = short_request(
        model_file("multi_output"), tmp_path, "cpu1", f"acc=delegate:{delegate},max_nodes=1",
        granularity="op",
    )  # fmt: skip
    found = controller.optimize(request).map
    assert found.search is not None
    assert (found.search.placements, found.search.measured, found.search.failed) == (8, 8, 4)
    with Store.open(request.store) as store:
        (session,) = store.sessions()
        failures = [
            m.failure
            for m in store.session(session.key, {}, resume=True).measurements()
            if m.failure is not None
        ]
    assert [(failure.kind, failure.platform) for failure in failures] == [("unsupported", "acc")] * 4
    assert sum("test_delegate.so 1/2" in failure.message for failure in failures) == 3
    assert sum("test_delegate.so 1/3" in failure.message for failure in failures) == 1


def test_explain_says_which_segment_on_which_platform_disagreed_and_by_how_much(
    optimized: Callable[..., controller.OptimizeOutcome],
) -> None:
    outcome = optimized("ops=TANH,mode=wrong,scale=1.5,offset=0")
    text = "\n".join(controller.explain_map(outcome.map_path))
    tanh = next(r for r in outcome.map.rejected if r.failure == "wrong_output")
    assert tanh.numeric is not None
    # An output 1.5 times what it should be: the error is half the signal, 20 log10(1 / 0.5) = 6.02 dB.
    assert tanh.numeric.snr_db == pytest.approx(6.02, abs=0.05)
    assert "acc" in text
    assert "SNR 6.0 dB" in text


def test_a_delegate_that_is_wrong_only_after_some_runs_is_caught_by_the_whole_placement(
    optimized: Callable[..., controller.OptimizeOutcome],
) -> None:
    # The trial of the unit sees the first runs only; the check of the placement runs eight samples.
    found = optimized("ops=TANH,mode=wrong,offset=3,after_runs=4").map
    assert [segment.platform for segment in found.segments] == ["cpu1"]
    assert found.search is not None
    assert found.search.failed == 1 or "wrong_output" in failures_of(found)


def test_a_library_moved_away_after_the_search_makes_verify_fail(
    delegate: Path, tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    library = tmp_path / "libmoved.so"
    library.write_bytes(delegate.read_bytes())
    model = model_file("multi_output")
    request = short_request(
        model,
        tmp_path,
        "cpu1",
        f"acc=delegate:{library},ops=TANH,mode=right",
        granularity="op",
        pins=("TANH=acc",),
    )
    outcome = controller.optimize(request)
    assert "acc" in {segment.platform for segment in outcome.map.segments}
    verify = controller.VerifyRequest(map=outcome.map_path, model=model, rounds=12, tolerance=5.0)
    assert controller.verify(verify)["holds"]

    library.rename(tmp_path / "elsewhere.so")
    with pytest.raises(controller.CheckFailedError, match=r"a platform of this map is not there: acc"):
        controller.verify(verify)
    assert load_map(outcome.map_path) == outcome.map
