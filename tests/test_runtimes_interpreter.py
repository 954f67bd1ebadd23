from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerators import require_runtime
from worker_jobs import BUILTIN, CPU, REFERENCE, seeded

from device_agents.protocol import RequestError
from device_agents.runtimes import Session, StageError, open_session, runtime_versions
from edgeplace.testing.model_builder import Builder

ModelFile = Callable[[str], Path]


@pytest.fixture(params=["litert", "tflite"])
def runtime(request: pytest.FixtureRequest) -> str:
    require_runtime(request.param)
    return str(request.param)


def opened(path: Path, platform: dict[str, Any] = CPU, **more: Any) -> Session:
    return open_session(platform, str(path), **more)


def inputs_for(session: Session, seed: int = 0) -> list[Any]:
    return [seeded(*spec.shape, dtype=spec.dtype, seed=seed) for spec in session.inputs]


def rows_of_any_number() -> bytes:
    builder = Builder()
    graph = builder.graph()
    x = graph.input((1, 4), shape_signature=(-1, 4))
    graph.output(graph.unary("TANH", x))
    return builder.finish()


def test_versions_are_known_by_package(runtime: str) -> None:
    assert {"litert": "ai-edge-litert", "tflite": "tflite-runtime"}[runtime] in runtime_versions()


def test_the_kernel_set_asked_for_is_what_runs(model_file: ModelFile, runtime: str) -> None:
    path = model_file("conv_chain")
    outputs = {}
    for kernels in ("xnnpack", "builtin", "reference"):
        session = opened(path, {**CPU, "runtime": runtime, "options": {"kernels": kernels}})
        assert session.accelerated is None
        assert session.nodes["total"] == sum(count for who, count in session.nodes.items() if who != "total")
        assert kernels in session.ran_on
        (outputs[kernels],) = session.run(inputs_for(session))
    np.testing.assert_allclose(outputs["xnnpack"], outputs["reference"], atol=1e-5)
    np.testing.assert_allclose(outputs["builtin"], outputs["reference"], atol=1e-5)


def test_what_run_gives_stays_when_the_session_runs_again(model_file: ModelFile, runtime: str) -> None:
    session = opened(model_file("branchy"), {**CPU, "runtime": runtime})
    first = session.run(inputs_for(session, 1))
    kept = [output.copy() for output in first]
    session.run(inputs_for(session, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, kept))


def test_an_arriving_shape_resizes_the_input(tmp_path: Path, runtime: str) -> None:
    (tmp_path / "rows.tflite").write_bytes(rows_of_any_number())
    session = opened(tmp_path / "rows.tflite", {**CPU, "runtime": runtime})
    for rows in (1, 3, 3, 2, 1):
        array = seeded(rows, 4, seed=rows)
        (output,) = session.run([array])
        np.testing.assert_allclose(output, np.tanh(array), atol=1e-6)
    assert session.inputs[0].shape == (1, 4)


def test_shapes_asked_for_are_there_from_the_start(tmp_path: Path, runtime: str) -> None:
    (tmp_path / "rows.tflite").write_bytes(rows_of_any_number())
    for key in ("in0", "0"):
        platform = {**CPU, "runtime": runtime}
        session = opened(tmp_path / "rows.tflite", platform, input_shapes={key: [5, 4]})
        assert (session.inputs[0].shape, session.outputs[0].shape) == ((5, 4), (5, 4))


@pytest.mark.parametrize("name", ["svdf_state", "lstm_state", "resource_variables"])
@pytest.mark.parametrize("platform", [CPU, BUILTIN, REFERENCE], ids=lambda platform: platform["name"])
def test_a_reset_is_as_good_as_a_new_session(
    model_file: ModelFile, runtime: str, name: str, platform: dict[str, Any]
) -> None:
    session = opened(model_file(name), {**platform, "runtime": runtime})
    assert session.facts.stateful
    inputs = inputs_for(session)
    first, second = session.run(inputs), session.run(inputs)
    assert not all(np.array_equal(a, b) for a, b in zip(first, second))
    session.reset()
    assert all(np.array_equal(a, b) for a, b in zip(first, session.run(inputs)))


def test_strings_booleans_and_empty_outputs_pass(model_file: ModelFile, runtime: str) -> None:
    session = opened(model_file("strings"), {**CPU, "runtime": runtime})
    strings = [spec for spec in session.inputs if spec.dtype == "string"]
    assert strings
    arrays = [
        np.array([b"word %d" % i for i in range(int(np.prod(spec.shape)))], dtype=object).reshape(spec.shape)
        if spec.dtype == "string"
        else np.zeros(spec.shape, dtype=spec.dtype)
        for spec in session.inputs
    ]
    outputs = session.run(arrays)
    assert any(output.dtype.kind in "OS" for output in outputs)


def test_an_output_without_elements_has_its_shape(model_file: ModelFile, runtime: str) -> None:
    session = opened(model_file("dynamic_where"), {**CPU, "runtime": runtime})
    outputs = session.run([np.zeros(spec.shape, dtype=spec.dtype) for spec in session.inputs])
    assert any(output.size == 0 for output in outputs)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [("unknown_custom_op", "unsupported", "EdgePlaceUnknown")],
)
def test_an_operator_nobody_has_is_unsupported_and_named(
    model_file: ModelFile, runtime: str, name: str, kind: str, says: str
) -> None:
    with pytest.raises(StageError) as caught:
        opened(model_file(name), {**CPU, "runtime": runtime})
    assert (caught.value.kind, caught.value.stage) == (kind, "prepare")
    assert says in caught.value.message


@pytest.mark.parametrize("content", [b"", b"no model at all", b"\x1c\0\0\0TFL3" + b"\xff" * 60])
def test_a_file_that_is_no_model_fails_to_compile(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.tflite").write_bytes(content)
    with pytest.raises(StageError) as caught:
        opened(tmp_path / "broken.tflite")
    assert (caught.value.kind, caught.value.stage) == ("compile_failed", "compile")


def test_wrong_types_and_numbers_of_arrays_are_refused(model_file: ModelFile, runtime: str) -> None:
    session = opened(model_file("conv_chain"), {**CPU, "runtime": runtime})
    with pytest.raises(StageError, match="float32, the array given is float64"):
        session.run([np.zeros(session.inputs[0].shape)])


def test_a_shape_the_file_cannot_take_fails_to_prepare(model_file: ModelFile, runtime: str) -> None:
    session = opened(model_file("conv_chain"), {**CPU, "runtime": runtime})
    with pytest.raises(StageError) as caught:
        session.run([np.zeros((1, 16, 16, 5), np.float32)])
    assert caught.value.kind == "prepare_failed"


@pytest.mark.parametrize(
    "platform",
    [
        {**CPU, "loader": "elsewhere"},
        {**CPU, "runtime": "nothing"},
        {**CPU, "options": {"kernels": "fast"}},
        {**CPU, "options": {"thread": 2}},
        {**CPU, "options": {"threads": 0}},
    ],
)
def test_unknown_loaders_runtimes_and_options_are_request_errors(
    model_file: ModelFile, platform: dict[str, Any]
) -> None:
    with pytest.raises(RequestError):
        opened(model_file("conv_chain"), platform)


def test_a_delegate_that_is_not_there_fails_to_compile(model_file: ModelFile, runtime: str) -> None:
    with pytest.raises(StageError) as caught:
        opened(model_file("conv_chain"), {**CPU, "runtime": runtime, "library": "/nowhere/libdelegate.so"})
    assert caught.value.kind == "compile_failed"
    assert "/nowhere/libdelegate.so" in caught.value.message


def test_stages_are_reported_before_they_begin(model_file: ModelFile) -> None:
    stages: list[str] = []
    opened(model_file("conv_chain"), progress=stages.append)
    assert stages == ["compile", "prepare"]
