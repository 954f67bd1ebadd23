"""What a user asks for arrives: inputs, signature, limits, minutes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from optimize_runs import short_request

from edgeplace import controller
from edgeplace.tflite.reader import Model

ModelFile = Callable[[str], Path]


def test_outputs_are_checked_on_the_users_inputs(model_file: ModelFile, tmp_path: Path) -> None:
    samples = np.random.default_rng(5).random((3, 1, 16, 16, 3)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", image=samples)
    found = controller.optimize(
        short_request(model_file("conv_chain"), tmp_path, "cpu1", inputs=tmp_path / "samples.npz", budget=1)
    ).map
    assert found.result is not None
    assert "samples.npz" in found.result.inputs
    seeded = controller.optimize(short_request(model_file("conv_chain"), tmp_path, "cpu1", budget=1)).map
    assert seeded.result is not None
    assert "seeded" in seeded.result.inputs
    assert seeded.result.numeric != found.result.numeric


def test_the_signature_asked_for_is_placed_verified_and_generated(
    model_file: ModelFile, tmp_path: Path
) -> None:
    path = model_file("two_signatures")
    for signature in Model.load(path).signatures:
        outcome = controller.optimize(
            short_request(path, tmp_path, "cpu1", signature=signature.key, budget=1)
        )
        assert outcome.map.model.signature == signature.key
        assert outcome.map.model.nodes == len(controller.inspect(path, signature=signature.key)["operators"])
        verify = controller.VerifyRequest(map=outcome.map_path, model=path, rounds=12, tolerance=20)
        assert controller.verify(verify)["holds"]
        out = tmp_path / signature.key
        controller.generate(outcome.map_path, out, model=path)
        subprocess.run([sys.executable, "runner.py", "--bench", "--runs", "1"], cwd=out, check=True)


@pytest.mark.parametrize(("asked_db", "at_most_db"), [(30.0, 30.0), (5.0, 5.0)])
def test_a_looser_limit_is_kept(
    asked_db: float, at_most_db: float, model_file: ModelFile, tmp_path: Path
) -> None:
    found = controller.optimize(
        short_request(model_file("conv_chain"), tmp_path, "cpu1", min_snr_db=asked_db, budget=1)
    ).map
    assert found.result is not None
    assert found.result.limit.snr_db is not None
    assert found.result.limit.snr_db <= at_most_db


def test_without_time_only_the_single_platforms_are_measured(model_file: ModelFile, tmp_path: Path) -> None:
    found = controller.optimize(
        short_request(
            model_file("branchy"),
            tmp_path,
            "cpu1",
            "twin=cpu1,threads=1",
            threshold=0,
            budget=None,
            minutes=0.0,
        )
    ).map
    assert found.search is not None
    assert (found.search.finished_by, found.search.measured) == ("minutes", 0)
    assert {"cpu1", "twin"} <= set(found.baselines)
    assert len(found.segments) == 1
