"""The live A/A tool: how it counts, and one real run of a few rounds."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

TOOL = Path(__file__).parent.parent / "tools" / "bench" / "aa.py"


@pytest.fixture(scope="module")
def aa() -> ModuleType:
    spec = importlib.util.spec_from_file_location("edgeplace_bench_aa", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def times_of(first: float, second: float, rounds: int) -> np.ndarray:
    noise = np.exp(np.random.default_rng(1).normal(0, 0.01, (2, rounds, 5)))
    return noise * np.array([first, second])[:, None, None]


def test_equal_plans_have_no_false_winner_and_a_gain_is_found(aa: ModuleType) -> None:
    found = aa.judge(times_of(1.0, 1.0, 90), rounds=40)
    assert found["finals"] == 2
    assert found["false_winners"] == 0
    assert found["gain_found"] == 1
    assert "| false winners (margin 1%) | 0.0% |" in aa.markdown("m.tflite", found)


@pytest.mark.parametrize("times", [(0.9, 1.0), (1.0, 0.9)])
def test_plans_that_differ_are_counted_whichever_is_faster(
    aa: ModuleType, times: tuple[float, float]
) -> None:
    assert aa.judge(times_of(*times, 80), rounds=40)["false_winners"] == 0.5


def test_plans_take_turns_at_being_first(aa: ModuleType) -> None:
    calls: list[str] = []
    times = aa.interleaved([lambda: calls.append("a"), lambda: calls.append("b")], rounds=2, runs=2)
    assert times.shape == (2, 2, 2)
    assert "".join(calls[2 * aa.WARMUP_RUNS :]) == "aaabbbbbbaaa"


def test_real_run_prints_json_and_saves_its_times(
    aa: ModuleType,
    model_file: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aa, "WARMUP_RUNS", 1)
    saved = tmp_path / "times.npz"
    model = model_file("conv_chain")
    aa.main([str(model), "--finals", "1", "--rounds", "12", "--runs", "2", "--json", "--save", str(saved)])
    assert json.loads(capsys.readouterr().out)["model"] == model.name
    assert np.load(saved)["times_ns"].shape == (2, 12, 2)
