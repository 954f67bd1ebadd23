"""LiteRT's accelerators: the real GPU path (SwiftShader where there is no GPU) and the real NPU dispatch (OpenVINO)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerators import require_gpu, require_npu, require_runtime
from worker_jobs import BUILTIN, CPU, GPU, NPU, Jobs, plan_of, seeded

from device_agents.protocol import RequestError
from device_agents.runtimes import StageError, open_session
from edgeplace.testing.model_builder import Builder, fb

ModelFile = Callable[[str], Path]
ROOT = Path(__file__).resolve().parent.parent

gpu = pytest.mark.gpu
npu = pytest.mark.npu


@pytest.fixture(params=[pytest.param(GPU, marks=gpu, id="gpu"), pytest.param(NPU, marks=npu, id="npu")])
def platform(request: pytest.FixtureRequest) -> dict[str, Any]:
    require_gpu() if request.param is GPU else require_npu()
    return dict(request.param)


def relative_error(got: Any, wanted: Any) -> float:
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def test_an_accelerated_file_says_where_it_ran_and_is_right(
    model_file: ModelFile, platform: dict[str, Any]
) -> None:
    path = str(model_file("face_landmark"))
    session = open_session(platform, path)
    assert session.accelerated is True
    assert session.ran_on.startswith(platform["name"])
    assert session.nodes == {"total": 97, platform["name"]: 97}
    inputs = [seeded(1, 192, 192, 3) * 0.5 + 0.5]
    wanted = open_session(BUILTIN, path).run(inputs)
    for _ in range(2):
        got = session.run(inputs)
        # bf16 is what OpenVINO computes in on CPUs that have it; fp32 elsewhere.
        assert all(relative_error(a, b) < 0.05 for a, b in zip(got, wanted))


def test_operators_that_are_refused_are_named(model_file: ModelFile, platform: dict[str, Any]) -> None:
    with pytest.raises(StageError) as caught:
        open_session(platform, str(model_file("resource_variables")))
    assert (caught.value.kind, caught.value.stage) == ("unsupported", "compile")
    assert "VAR_HANDLE" in caught.value.message


def test_with_fallback_it_runs_and_is_not_accelerated(
    model_file: ModelFile, platform: dict[str, Any]
) -> None:
    path = str(model_file("resource_variables"))
    options = {**platform.get("options", {}), "fallback": True}
    session = open_session({**platform, "options": options}, path)
    assert session.accelerated is False
    assert "cpu" in session.ran_on
    reference = open_session(BUILTIN, path)
    inputs = [seeded(*spec.shape, dtype=spec.dtype) for spec in session.inputs]
    first = session.run(inputs)
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(first, reference.run(inputs)))
    session.run(inputs)
    session.reset()
    assert all(np.array_equal(a, b) for a, b in zip(first, session.run(inputs)))


def test_fallback_does_not_make_an_accelerated_file_less_so(
    model_file: ModelFile, platform: dict[str, Any]
) -> None:
    options = {**platform.get("options", {}), "fallback": True}
    session = open_session({**platform, "options": options}, str(model_file("conv_chain")))
    assert session.accelerated is True


def test_a_probe_says_available_and_what_it_found(
    tmp_path: Path, model_file: ModelFile, platform: dict[str, Any]
) -> None:
    jobs = Jobs(tmp_path)
    header, _ = jobs.do("probe", platform=platform, model=jobs.model(model_file("conv_chain")))
    assert header["available"], header
    assert header["details"]["accelerated"] is True
    assert "ai-edge-litert" in header["details"]["runtimes"]
    assert [event["stage"] for event in jobs.progress] == ["compile", "prepare", "first_run"]


@gpu
@npu
def test_gpu_npu_and_interpreter_share_one_process_and_one_plan(
    tmp_path: Path, model_file: ModelFile
) -> None:
    require_gpu()
    require_npu()
    builder = Builder()
    graph = builder.graph()
    graph.output(graph.add(graph.input((1, 4, 4, 8)), graph.input((1, 4, 4, 8))))
    jobs = Jobs(tmp_path)
    model = jobs.model(builder.finish())
    platforms = [GPU, CPU, NPU, BUILTIN]
    segments: list[Any] = [
        (platform, model, [["segment", number - 1, 0] if number else ["input", 0], ["input", 1]], 1)
        for number, platform in enumerate(platforms)
    ]
    x, y = seeded(1, 4, 4, 8, seed=1), seeded(1, 4, 4, 8, seed=2)
    plan = plan_of(segments, [["segment", 3, 0]])
    header, (got,) = jobs.do("run", plan=plan, inputs=[[jobs.array(x), jobs.array(y)]])
    assert [segment["accelerated"] for segment in header["segments"]] == [True, None, True, None]
    np.testing.assert_allclose(got, x + 4 * y, rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    "options",
    [
        {"enforce_f64": True},
        {"enforce_f32": "maybe"},
        {"graph_backend": "TPU"},
        {"graph_backend": "CPU", "vtcm_size": 1},
        {"threads": "many"},
    ],
)
def test_unknown_options_are_request_errors(model_file: ModelFile, options: dict[str, Any]) -> None:
    require_runtime("litert")
    kind = "gpu" if any(name.startswith("enforce") for name in options) else "npu"
    with pytest.raises(RequestError, match=r"option"):
        open_session(
            {"name": kind, "kind": kind, "loader": "compiled_model", "options": options},
            str(model_file("conv_chain")),
        )


def test_an_accelerator_that_does_not_exist_is_a_request_error(model_file: ModelFile) -> None:
    require_runtime("litert")
    with pytest.raises(RequestError, match="edgetpu"):
        open_session(
            {"name": "x", "kind": "edgetpu", "loader": "compiled_model"}, str(model_file("conv_chain"))
        )


def test_64_bit_integers_and_booleans_pass_through_the_buffers(tmp_path: Path) -> None:
    require_runtime("litert")
    builder = Builder()
    graph = builder.graph()
    x, flag = graph.input((2, 3), "int64"), graph.input((2, 3), "bool")
    total = graph.make("ADD", [x, x], (2, 3), fb.AddOptionsT(), "int64", name="total")
    graph.output(total, graph.make("LOGICAL_NOT", [flag], (2, 3), fb.LogicalNotOptionsT(), "bool"))
    path = tmp_path / "types.tflite"
    path.write_bytes(builder.finish())
    session = open_session({"name": "cpu", "kind": "cpu", "loader": "compiled_model"}, str(path))
    numbers, flags = np.arange(6, dtype=np.int64).reshape(2, 3) << 40, np.eye(2, 3, dtype=bool)
    doubled, inverted = session.run([numbers, flags])
    assert (doubled.dtype, inverted.dtype) == (np.int64, np.bool_)
    np.testing.assert_array_equal(doubled, 2 * numbers)
    np.testing.assert_array_equal(inverted, ~flags)


PROBE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from worker_jobs import Jobs
jobs = Jobs(Path(sys.argv[2]))
header, _ = jobs.do("probe", platform=json.loads(sys.argv[3]), model=jobs.model(Path(sys.argv[4])))
print("ANSWER" + json.dumps(header))
"""


def probe_elsewhere(
    tmp_path: Path, platform: dict[str, Any], model: Path, **environment: str
) -> dict[str, Any]:
    """A probe in a new process."""
    folder = tmp_path / "blobs"
    folder.mkdir(exist_ok=True)
    arguments = [str(ROOT / "tests"), str(folder), json.dumps(platform), str(model)]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.rpartition("ANSWER")[2])
    return answer


@gpu
def test_without_a_vulkan_driver_the_gpu_is_not_available_and_says_why(
    tmp_path: Path, model_file: ModelFile
) -> None:
    require_gpu()
    platform = {**GPU, "env": {"VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": "/nowhere.json"}}
    answer = probe_elsewhere(tmp_path, platform, model_file("conv_chain"))
    assert not answer["available"]
    assert "Vulkan" in answer["reason"]


@npu
def test_without_openvino_the_npu_is_not_available_and_names_the_library(
    tmp_path: Path, model_file: ModelFile
) -> None:
    """The same ai-edge-litert, but where no OpenVINO stands beside it."""
    require_npu()
    import ai_edge_litert

    site = tmp_path / "site"
    package = Path(ai_edge_litert.__file__).parent
    shutil.copytree(package, site / "ai_edge_litert", ignore=shutil.ignore_patterns("aot", "__pycache__"))
    (site / "openvino").mkdir()  # hides the installed one
    (site / "openvino" / "__init__.py").write_text("")
    answer = probe_elsewhere(tmp_path, NPU, model_file("conv_chain"), PYTHONPATH=str(site))
    assert not answer["available"]
    assert "libopenvino.so." in answer["reason"]
    assert "[npu-intel]" in answer["reason"]
    fallback = {**NPU, "options": {**NPU["options"], "fallback": True}}
    answer = probe_elsewhere(tmp_path, fallback, model_file("conv_chain"), PYTHONPATH=str(site))
    assert not answer["available"]  # LiteRT itself calls this "fully accelerated"
    assert "libopenvino.so." in answer["reason"]
