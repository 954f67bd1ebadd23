"""`verify` says no: wrong numbers, another runner, slower than the map says, and exit code 3."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runs import edgeplace
from delegate_build import build_test_delegate
from optimize_runs import short_request

from edgeplace import controller
from edgeplace.controller.verify import DEFAULT_PLATFORM, PLACEMENT, _check_speed
from edgeplace.delegate_map import DelegateMap, load_map
from edgeplace.measure.final import FinalResult


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, model_file: Callable[[str], Path]) -> Path:
    """The map of a small model whose TANH is on the test delegate, written into a folder of its own."""
    folder = tmp_path_factory.mktemp("found")
    delegate = build_test_delegate(folder)
    request = short_request(
        model_file("multi_output"), folder, "cpu1", f"acc=delegate:{delegate},ops=TANH,mode=right",
        granularity="op", pins=("TANH=acc",),
    )  # fmt: skip
    return controller.optimize(request).map_path


def verdict_of(
    found: Path, model: Path, folder: Path, old: str, new: str
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code and checks of `edgeplace verify` for the map with one piece of its text replaced."""
    text = found.read_text()
    assert old in text
    (folder / "map.yaml").write_text(text.replace(old, new))
    done = edgeplace(
        "verify", "map.yaml", "--model", model, "--rounds", "12", "--tolerance", "20", "--json", folder=folder
    )
    assert done.stdout, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["holds"] == (done.returncode == 0)
    return done.returncode, {check["name"]: check for check in verdict["checks"]}


def test_a_map_that_holds(found: Path, model_file: Callable[[str], Path], tmp_path: Path) -> None:
    code, checks = verdict_of(found, model_file("multi_output"), tmp_path, "mode: right", "mode: right")
    assert code == 0
    assert all(check["holds"] for check in checks.values())
    assert set(checks) >= {"segment files", "outputs", "as fast as the map says", "what ran each segment"}


@pytest.mark.parametrize(
    ("old", "new", "failing", "words"),
    [
        ("mode: right", "mode: wrong, scale: 1.5", {"outputs"}, "SNR"),
        ("ops: TANH", "ops: none", {"what ran each segment"}, "then"),
    ],
    ids=["wrong outputs", "ran elsewhere"],
)
def test_a_map_that_does_not_hold(
    found: Path,
    model_file: Callable[[str], Path],
    tmp_path: Path,
    old: str,
    new: str,
    failing: set[str],
    words: str,
) -> None:
    code, checks = verdict_of(found, model_file("multi_output"), tmp_path, old, new)
    assert code == 3
    assert {name for name, check in checks.items() if not check["holds"]} == failing
    assert all(words in checks[name]["found"] for name in failing)


def test_segment_files_that_the_model_does_not_give(
    found: Path, model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    sha256 = load_map(found).segments[0].sha256
    code, checks = verdict_of(found, model_file("multi_output"), tmp_path, sha256, "f" * 64)
    assert code == 3
    assert checks["segment files"]["found"] == "segments [0] differ"


@pytest.mark.parametrize(
    ("now_ms", "single_ms", "default_ms", "holds"),
    [
        (1.0, 2.0, 3.0, {"single": True, "map": True}),
        (1.5, 2.0, 3.0, {"single": True, "map": False}),  # half as slow again on a board as it was
        (1.5, 3.0, 4.5, {"single": True, "map": True}),  # all of the board is half as slow again
        (2.6, 2.0, 3.0, {"single": False, "map": False}),
        (
            2.6,
            2.0,
            12.0,
            {"single": False, "map": True},
        ),  # the yardsticks changed by 1 and by 4: 2.5 in the middle
    ],
)
def test_speed_is_compared_with_the_map_and_with_the_best_single_platform(
    found: Path, now_ms: float, single_ms: float, default_ms: float, holds: dict[str, bool]
) -> None:
    said = load_map(found)
    assert said.result is not None
    delegate_map: DelegateMap = said.model_copy(
        update={
            "result": said.result.model_copy(update={"p50_ms": 1.0}),
            "baselines": {"cpu1": 2.0, DEFAULT_PLATFORM: 3.0},
        }
    )
    p50_ms = {PLACEMENT: now_ms, "cpu1": single_ms, DEFAULT_PLATFORM: default_ms}
    intervals = {name: (ms * 0.99, ms * 1.01) for name, ms in p50_ms.items()}
    checks = _check_speed(delegate_map, FinalResult(p50_ms, intervals, None, 12, {}), 0.25)
    assert {check["name"]: check["holds"] for check in checks} == {
        "not slower than the best single platform": holds["single"],
        "as fast as the map says": holds["map"],
    }
