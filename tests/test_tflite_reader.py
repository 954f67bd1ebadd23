"""Reading models: what a good file says, and what a person is told about a bad one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from authored import authored_model
from model_files import available_models

from edgeplace.atomic import write_atomic
from edgeplace.errors import ModelError
from edgeplace.testing.models import AUTHORED
from edgeplace.tflite.reader import Model

ModelFile = Callable[[str], Path]


@pytest.mark.parametrize("name", AUTHORED)
def test_reads_every_authored_model(name: str) -> None:
    content = AUTHORED[name]()
    model = Model.from_bytes(content, name)
    assert model.sha256 == hashlib.sha256(content).hexdigest()
    assert model.size_bytes == len(content)
    assert model.subgraphs
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors:
            if tensor.is_constant and tensor.dtype != "string" and not tensor.is_sparse:
                assert len(model.constant(tensor.buffer)) == tensor.size_bytes


def test_reads_every_fetched_model(model_file: ModelFile) -> None:
    model_file("face_landmark")  # skips, or fails in CI, when nothing is fetched
    for name in available_models():
        model = Model.load(model_file(name))
        assert model.name == f"{name}.tflite"
        assert model.subgraphs[0].operators


def test_facts_of_a_real_model(model_file: ModelFile) -> None:
    model = Model.load(model_file("okay_nabu"))
    kinds = [operator.op_type for operator in model.subgraphs[0].operators]
    assert kinds.count("VAR_HANDLE") == 6
    assert kinds.count("CALL_ONCE") == 1
    once = model.subgraphs[0].operators[kinds.index("CALL_ONCE")]
    assert once.subgraphs == (1,)
    assert "min_runtime_version" in model.metadata
    assert len({o.resource for o in model.subgraphs[0].operators if o.resource}) == 6


def test_facts_of_authored_models() -> None:
    lstm = authored_model("lstm_state").subgraphs[0]
    assert lstm.operators[0].inputs.count(-1) == 9
    assert [t.name for t in lstm.tensors if t.is_variable] == ["output_state", "cell_state"]
    assert authored_model("nested_control").subgraphs[4].operators[1].subgraphs == (1, 3)
    assert authored_model("composite").subgraphs[0].operators[1].subgraphs == (1,)
    assert authored_model("resource_variables").subgraphs[1].operators[0].resource == "sum"
    signatures = authored_model("two_signatures").signatures
    assert [(s.key, s.subgraph) for s in signatures] == [("encode", 0), ("decode", 1)]
    assert list(signatures[1].outputs) == ["raw", "positive"]
    custom = authored_model("custom_op").subgraphs[0].operators[2]
    assert (custom.op_type, custom.custom_code) == ("CUSTOM", "TFLite_Detection_PostProcess")
    sparse = next(t for t in authored_model("sparse_weights").subgraphs[0].tensors if t.is_sparse)
    assert sparse.is_constant
    conv = authored_model("conv_chain").subgraphs[0].operators[0]
    assert (conv.options["stride_w"], conv.options["dilation_w_factor"], conv.options["padding"]) == (2, 1, 0)
    kernel = authored_model("int8_per_channel").subgraphs[0].tensors[2]
    assert kernel.quantization is not None
    assert len(kernel.quantization.scales) == 4
    old, new = authored_model("old_builtin_codes"), authored_model("new_builtin_codes")
    assert [o.op_type for o in old.subgraphs[0].operators] == ["CONV_2D", "RESHAPE", "FULLY_CONNECTED"]
    assert [o.op_type for o in new.subgraphs[0].operators] == ["GELU", "BROADCAST_TO", "FULLY_CONNECTED"]


def test_shared_buffer_is_one_buffer() -> None:
    model = authored_model("shared_constants")
    first, twin = model.subgraphs[0].tensors[1], model.subgraphs[0].tensors[2]
    assert first.buffer == twin.buffer
    assert model.constant(first.buffer) is model.constant(twin.buffer)


def test_constants_are_views_of_the_file(tmp_path: Path) -> None:
    content = AUTHORED["conv_chain"]()
    path = tmp_path / "m.tflite"
    path.write_bytes(content)
    model = Model.load(path)
    kernel = next(t for t in model.subgraphs[0].tensors if t.is_constant)
    view = model.constant(kernel.buffer)
    assert view.readonly
    assert np.frombuffer(view, np.float32).size == kernel.elements


NOT_MODELS = {
    "empty": (b"", "empty"),
    "zip": (b"PK\x03\x04" + bytes(40), "zip"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "HDF5"),
    "onnx": (b"\x08\x07\x12\x07pytorch" + bytes(40), "ONNX"),
    "saved model": (b"\x0a\x0f\x12\x05node1" + bytes(40), "SavedModel"),
    "edge tpu": (b"\x20\0\0\0DWN1" + bytes(40), "Edge TPU"),
    "lfs pointer": (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
    "web page": (b"<!DOCTYPE html><html></html>", "web page"),
    "wrong identifier": (b"\x1c\0\0\0TFL2" + bytes(40), "TFL2"),
    "three bytes": (b"TFL", "not a .tflite"),
}


@pytest.mark.parametrize("name", NOT_MODELS)
def test_says_what_another_file_is(name: str) -> None:
    content, words = NOT_MODELS[name]
    with pytest.raises(ModelError) as caught:
        Model.from_bytes(content, "thing.tflite")
    assert words in f"{caught.value} {caught.value.hint}"
    assert caught.value.where == "thing.tflite"
    assert caught.value.hint


def test_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "right.tflite").write_bytes(b"x")
    with pytest.raises(ModelError, match="no such file") as caught:
        Model.load(tmp_path / "rihgt.tflite")
    assert "right.tflite" in caught.value.hint
    with pytest.raises(ModelError) as caught:
        Model.load(tmp_path / "nowhere" / "x.tflite")
    assert "no folder" in caught.value.hint


def test_folder_and_saved_model_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="folder"):
        Model.load(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"x")
    with pytest.raises(ModelError) as caught:
        Model.load(tmp_path)
    assert "SavedModel" in caught.value.hint


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="pipe"):
        Model.load(tmp_path / "pipe")


def test_replacing_the_file_leaves_an_open_model_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(AUTHORED["branchy"]())
    model = Model.load(path)
    write_atomic(path, [b"something else"])
    assert hashlib.sha256(model.data).hexdigest() == model.sha256


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(AUTHORED["branchy"]())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # a test run by root may read everything
    with pytest.raises(ModelError, match="no permission") as caught:
        Model.load(path)
    assert "chmod" in caught.value.hint


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.touch()
    with pytest.raises(ModelError, match="empty") as caught:
        Model.load(path)
    assert caught.value.where == str(path)
