"""The C library's loader against the Python interpreter of the newer runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerators import c_library
from worker_jobs import BUILTIN, CPU, seeded

from device_agents.protocol import RequestError
from device_agents.runtimes import StageError, open_session
from edgeplace.testing.model_builder import Builder

ModelFile = Callable[[str], Path]


def platform(**options: Any) -> dict[str, Any]:
    return {"name": "c", "kind": "cpu", "loader": "tflite_c", "library": str(c_library()), "options": options}


@pytest.mark.parametrize("name", ["conv_chain", "branchy", "multi_output", "int8_per_channel", "cycle_trap"])
@pytest.mark.parametrize("xnnpack", [True, False])
def test_it_agrees_with_the_interpreter(model_file: ModelFile, name: str, xnnpack: bool) -> None:
    path = str(model_file(name))
    session = open_session(platform(xnnpack=xnnpack), path)
    reference = open_session(CPU if xnnpack else BUILTIN, path)
    assert [(spec.dtype, spec.shape) for spec in session.inputs] == [
        (spec.dtype, spec.shape) for spec in reference.inputs
    ]
    inputs = [seeded(*spec.shape, dtype=spec.dtype) for spec in session.inputs]
    for _ in range(3):
        for got, wanted in zip(session.run(inputs), reference.run(inputs)):
            np.testing.assert_allclose(got, wanted, atol=2 if got.dtype.kind in "iu" else 1e-5)


def test_xnnpack_is_made_explicitly_and_counted(model_file: ModelFile) -> None:
    path = str(model_file("conv_chain"))
    with_it, without = open_session(platform(), path), open_session(platform(xnnpack=False), path)
    assert with_it.nodes["xnnpack"] == with_it.nodes["total"]
    assert without.nodes == {"total": with_it.nodes["total"], "builtin": with_it.nodes["total"]}
    assert with_it.details["version"] in with_it.ran_on


def test_tensors_that_move_while_running_are_followed(model_file: ModelFile) -> None:
    """A tensor sized while running makes the library plan its memory again: inputs and outputs move."""
    path = str(model_file("anomaly_detection"))
    session, reference = open_session(platform(xnnpack=False), path), open_session(BUILTIN, path)
    for seed in range(5):
        inputs = [seeded(*spec.shape, dtype=spec.dtype, seed=seed) for spec in session.inputs]
        for got, wanted in zip(session.run(inputs), reference.run(inputs)):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_an_arriving_shape_resizes_the_input(tmp_path: Path) -> None:
    builder = Builder()
    graph = builder.graph()
    graph.output(graph.unary("TANH", graph.input((1, 4), shape_signature=(-1, 4))))
    (tmp_path / "rows.tflite").write_bytes(builder.finish())
    session = open_session(platform(), str(tmp_path / "rows.tflite"), input_shapes={"in0": [2, 4]})
    assert session.outputs[0].shape == (2, 4)
    for rows in (1, 3, 3, 2):
        array = seeded(rows, 4)
        np.testing.assert_allclose(session.run([array])[0], np.tanh(array), atol=1e-6)


@pytest.mark.parametrize("name", ["lstm_state", "resource_variables"])
def test_a_reset_is_as_good_as_a_new_session(model_file: ModelFile, name: str) -> None:
    session = open_session(platform(), str(model_file(name)))
    inputs = [seeded(*spec.shape, dtype=spec.dtype) for spec in session.inputs]
    first = session.run(inputs)
    session.run(inputs)
    session.reset()
    assert all(np.array_equal(a, b) for a, b in zip(first, session.run(inputs)))


def test_what_the_library_reports_is_the_reason(model_file: ModelFile) -> None:
    with pytest.raises(StageError, match="EdgePlaceUnknown") as caught:
        open_session(platform(), str(model_file("unknown_custom_op")))
    assert caught.value.kind == "unsupported"
    with pytest.raises(StageError) as caught:
        open_session(platform(), str(model_file("strings")))
    assert caught.value.kind == "unsupported"


def test_a_file_that_is_no_tflite_library_is_named(model_file: ModelFile, tmp_path: Path) -> None:
    (tmp_path / "libwrong.so").write_bytes(b"not a library")
    for library in (tmp_path / "libwrong.so", Path("/nowhere/lib.so")):
        with pytest.raises(StageError, match=library.name) as caught:
            open_session({**platform(), "library": str(library)}, str(model_file("conv_chain")))
        assert caught.value.kind == "compile_failed"


def test_unknown_options_are_request_errors(model_file: ModelFile) -> None:
    with pytest.raises(RequestError, match="kernels"):
        open_session(platform(kernels="builtin"), str(model_file("conv_chain")))
