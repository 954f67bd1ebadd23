"""The whole road on this machine's real parts: search, map, verify, generated code, resume, a killed host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerators import require_gpu, require_npu
from cli_runs import edgeplace, environment_of
from optimize_runs import short_request

from edgeplace import controller
from edgeplace.delegate_map import load_map
from edgeplace.measure import final
from edgeplace.measure.decision import Verdict, pick_winner
from edgeplace.store import Store

SHORT = ("--budget", "12", "--rounds", "12", "--sample-budget", "0.05", "--json")


@pytest.mark.npu
@pytest.mark.parametrize("name", ["image_classification", "hand_recrop"])
def test_a_real_model_over_the_machines_processors(
    name: str, model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    require_npu()
    model = model_file(name)
    done = edgeplace(
        "optimize", model, "--platform", "cpu", "--platform", "cpu1", "--platform", "npu",
        "-o", "map.yaml", *SHORT, folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    rows = {row["name"]: row for row in outcome["rows"]}
    assert {"cpu", "cpu1", "npu", "runtime-default"} <= set(rows)
    (chosen,) = (row for row in outcome["rows"] if row["chosen"])
    assert chosen["p50_ms"] > 0

    found = load_map(tmp_path / "map.yaml")
    assert found.result is not None
    assert found.search is not None
    assert found.search.measured <= 12
    placed = [node for segment in found.segments for node in segment.nodes]
    assert sorted(set(placed) | set(found.model.carried)) == list(range(found.model.nodes))
    # The decision rule was applied, whoever won: a mix only when its interval lies beyond 1 %.
    assert "rounds" in found.result.decision
    mixed = len({segment.platform for segment in found.segments}) > 1
    assert (found.result.speedup_over_best_single == 1.0) or mixed

    verified = edgeplace(
        "verify",
        "map.yaml",
        "--model",
        model,
        "--rounds",
        "12",
        "--tolerance",
        "20",
        "--json",
        folder=tmp_path,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    verdict = json.loads(verified.stdout)
    assert {check["name"]: check["holds"] for check in verdict["checks"]}.items() >= {
        ("segment files", True),
        ("outputs", True),
        ("what ran each segment", True),
    }

    made = edgeplace("generate", "map.yaml", "--model", model, "-o", "out", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    inputs = {
        name: np.random.default_rng(3).random(shape).astype(dtype) for name, dtype, shape in _inputs(model)
    }
    np.savez(tmp_path / "x.npz", **inputs)
    ran = subprocess.run(
        [sys.executable, "out/runner.py", "--inputs", "x.npz", "--outputs", "y.npz"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    with np.load(tmp_path / "y.npz") as outputs:
        assert all(np.isfinite(outputs[name].astype(np.float64)).all() for name in outputs.files)
        assert outputs.files


def _inputs(model: Path) -> list[tuple[str, str, list[int]]]:
    entry = controller.inspect(model)["entry"]
    return [(port["name"], port["type"], port["shape"]) for port in entry["inputs"]]


@pytest.mark.gpu
def test_the_gpu_is_measured_like_any_platform_and_takes_what_it_supports(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    require_gpu()
    found = controller.optimize(
        short_request(model_file("conv_chain"), tmp_path, "cpu1", "gpu", budget=4)
    ).map
    assert "gpu" not in found.platforms_left_out
    assert isinstance(found.baselines["gpu"], float)


def test_below_the_threshold_every_placement_is_measured_at_it_the_surrogate_searches(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    model = model_file("shared_constants")  # three convolutions: 2^3 placements on two platforms
    settings = {"budget": None, "granularity": "op"}
    every = controller.optimize(
        short_request(model, tmp_path, "cpu1", "cpu_ref", threshold=9, **settings)
    ).map
    assert every.search is not None
    assert (every.search.method, every.search.placements, every.search.measured) == ("exhaustive", 8, 8)
    trained = controller.optimize(
        short_request(model, tmp_path, "cpu1", "cpu_ref", threshold=8, **settings)
    ).map
    assert trained.search is not None
    assert trained.search.method == "surrogate"


def test_pins_and_bans_are_kept(model_file: Callable[[str], Path], tmp_path: Path) -> None:
    # Both keep operators on the slower of the two, where no search would put them by itself.
    found = controller.optimize(
        short_request(
            model_file("branchy"), tmp_path, "cpu1", "cpu_ref",
            granularity="op", pins=("DEPTHWISE*=cpu_ref",), bans=("CONV_2D=cpu1",), budget=4,
        )
    ).map  # fmt: skip
    free = 0
    for operator in controller.inspect(model_file("branchy"))["operators"]:
        if operator["type"] in ("DEPTHWISE_CONV_2D", "CONV_2D"):
            assert found.platform_of_nodes[operator["id"]] == "cpu_ref"
        else:
            free += 1
    assert found.search is not None
    assert found.search.placements == 2**free


@pytest.mark.parametrize("winner", ["cpu1", "twin", "fastest mix"])
def test_the_map_is_of_whom_the_final_decided_for(
    winner: str, model_file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decided(*given: Any, **options: Any) -> Verdict:
        return replace(pick_winner(*given, **options), winner=winner, is_single=winner != "fastest mix")

    monkeypatch.setattr(final, "pick_winner", decided)
    found = controller.optimize(
        short_request(
            model_file("image_classification"), tmp_path, "cpu1", "twin=cpu1,threads=1", budget=4, rounds=3
        )
    ).map
    used = {segment.platform for segment in found.segments}
    assert used == ({"cpu1", "twin"} if winner == "fastest mix" else {winner})
    assert found.result is not None
    assert (found.result.speedup_over_best_single == 1.0) == (winner != "fastest mix")


def test_the_same_records_and_seed_give_the_same_search_and_nothing_is_measured_twice(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    request = short_request(model_file("branchy"), tmp_path, "cpu1", "cpu_ref", threshold=0, budget=10)
    controller.optimize(request)
    with Store.open(request.store) as store:
        (first,) = store.sessions()
    again = controller.optimize(short_request(
        model_file("branchy"), tmp_path, "cpu1", "cpu_ref", threshold=0, budget=10, resume=True
    ))  # fmt: skip
    with Store.open(request.store) as store:
        (second,) = store.sessions()
    assert second.measured == first.measured
    assert again.map.search is not None
    assert again.map.search.measured == 10


def test_the_final_and_the_defaults_are_in_the_records_with_their_raw_runs(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    request = short_request(model_file("branchy"), tmp_path, "cpu1", "cpu_ref", budget=3)
    outcome = controller.optimize(request)
    with Store.open(request.store) as store:
        (summary,) = store.sessions()
        session = store.session(summary.key, {}, resume=True)
        final = {r.placement_id: r.measurement for r in session.records("interleave") if r.measurement}
        (default,) = session.records("baseline")
        assert not session.unfinished()
    assert default.placement_id == "runtime-default"
    in_final = {row["name"]: row["p50_ms"] for row in outcome.rows if row["in_final"]}
    assert set(final) == set(in_final)
    for measurement in final.values():
        assert measurement.timing is not None
        assert len(measurement.timing.times_ms) == 12 * 5  # rounds x runs


def test_a_killed_host_loses_at_most_the_sample_in_flight(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    command = [
        sys.executable, "-m", "edgeplace", "optimize", str(model_file("branchy")),
        "--platform", "cpu1", "--platform", "cpu_ref", "--threshold", "0", "--budget", "12", "--rounds", "12",
        "--sample-budget", "0.3", "--store", "store.sqlite", "-o", "map.yaml",
    ]  # fmt: skip
    host = subprocess.Popen(
        command, cwd=tmp_path, env=environment_of(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    measured = _wait_for_measurements(tmp_path / "store.sqlite", 3, host)
    host.send_signal(signal.SIGKILL)
    host.communicate()
    with Store.open(tmp_path / "store.sqlite") as store:
        (session,) = store.sessions()
    assert session.measured >= measured
    assert session.unfinished <= 1
    assert not (tmp_path / "map.yaml").exists()

    resumed = subprocess.run(
        [*command, "--resume"],
        cwd=tmp_path,
        env=environment_of(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    with Store.open(tmp_path / "store.sqlite") as store:
        (session,) = store.sessions()
    assert session.finished_at is not None
    assert load_map(tmp_path / "map.yaml").search is not None


def test_ctrl_c_keeps_all_measurements_and_says_how_to_resume(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    host = subprocess.Popen(
        [
            sys.executable, "-m", "edgeplace", "optimize", str(model_file("branchy")),
            "--platform", "cpu1", "--platform", "cpu_ref", "--threshold", "0", "--sample-budget", "0.3",
            "--store", "store.sqlite",
        ],
        cwd=tmp_path, env=environment_of(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    _wait_for_measurements(tmp_path / "store.sqlite", 2, host)
    host.send_signal(signal.SIGINT)
    _, said = host.communicate(timeout=60)
    assert host.returncode == 130
    assert "measurements are kept" in said
    assert "--resume" in said
    assert "Traceback" not in said
    with Store.open(tmp_path / "store.sqlite") as store:
        (session,) = store.sessions()
    assert session.measured >= 2
    assert session.finished_at is None


def _wait_for_measurements(
    path: Path, wanted: int, host: subprocess.Popen[bytes] | subprocess.Popen[str]
) -> int:
    """Watch the store until that many measurements are on the disk; the host must be alive until then."""
    while host.poll() is None:
        if path.exists():
            with Store.open(path) as store:
                sessions = store.sessions()
            if sessions and sessions[0].measured >= wanted:
                return sessions[0].measured
        os.sched_yield()
    raise AssertionError(f"the host ended by itself: {host.communicate()}")


def test_resume_without_an_earlier_search_says_so(model_file: Callable[[str], Path], tmp_path: Path) -> None:
    done = edgeplace("optimize", model_file("branchy"), "--platform", "cpu1", "--resume", folder=tmp_path)
    assert done.returncode == 1
    assert "without --resume" in done.stderr


def test_a_metric_decides_when_there_is_one(model_file: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "metric.py").write_text(
        "def mean(outputs, labels):\n    return float(sum(next(iter(o.values())).mean() for o in outputs))\n"
    )
    found = controller.optimize(
        short_request(
            model_file("conv_chain"),
            tmp_path,
            "cpu1",
            "cpu_ref",
            metric=f"{tmp_path}/metric.py:mean",
            budget=3,
        )
    ).map
    assert found.result is not None
    assert found.result.limit.metric is not None
    assert found.result.limit.snr_db is None
    assert found.result.numeric.metric is not None


def test_other_shapes_than_the_files_are_measured_and_verified(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    model = model_file("face_landmark")
    outcome = controller.optimize(
        short_request(model, tmp_path, "cpu1", shapes=("input_1=2x192x192x3",), budget=1)
    )
    assert outcome.map.model.shapes == {"input_1": (2, 192, 192, 3)}
    verdict = controller.verify(
        controller.VerifyRequest(map=outcome.map_path, model=model, rounds=12, tolerance=20)
    )
    assert verdict["holds"]
    controller.generate(outcome.map_path, tmp_path / "out", model=model)
    ran = subprocess.run(
        [sys.executable, "out/runner.py", "--bench", "--runs", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "(2, 192, 192, 3)" in (tmp_path / "out" / "runner.py").read_text()
