"""Cutting: what comes out is a file that runtimes take, and that computes bit for bit what the model computes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference_kernels import Arrays, reference_interpreter, reference_outputs

from edgeplace.errors import ModelError
from edgeplace.testing.model_builder import Builder, fb
from edgeplace.testing.models import AUTHORED, NOT_RUNNABLE, random_graph
from edgeplace.tflite import encoder
from edgeplace.tflite.cutter import SIGNATURE_KEY, cut
from edgeplace.tflite.model import Quantization
from edgeplace.tflite.reader import Model
from edgeplace.tflite.segment_file import SegmentFile

ModelFile = Callable[[str], Path]


def whole(model: Model, subgraph: int = 0, **more: Any) -> SegmentFile:
    """All of a subgraph as a cut."""
    graph = model.subgraphs[subgraph]
    return cut(model, subgraph, range(len(graph.operators)), graph.inputs, graph.outputs, **more)


def assert_bit_equal(got: Sequence[Arrays], wanted: Sequence[Arrays]) -> None:
    for got_step, wanted_step in zip(got, wanted, strict=True):
        for a, b in zip(got_step, wanted_step, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", AUTHORED)
def test_whole_model_cut_is_a_sound_file(name: str) -> None:
    segment = whole(Model.from_bytes(AUTHORED[name](), name))
    content = segment.to_bytes()
    assert len(content) == segment.size_bytes
    assert hashlib.sha256(content).hexdigest() == segment.sha256
    again = Model.from_bytes(content, "again")  # it passes our own checks
    assert [s.key for s in again.signatures] == [SIGNATURE_KEY]
    for constant in segment.constants:
        assert constant.offset % 16 == 0
        data = content[constant.offset : constant.offset + constant.size_bytes]
        assert hashlib.sha256(data).hexdigest() == constant.sha256
    assert whole(Model.from_bytes(AUTHORED[name]())).to_bytes() == content


@pytest.mark.parametrize("name", sorted(set(AUTHORED) - NOT_RUNNABLE - {"two_signatures"}))
def test_whole_model_cut_is_bit_equal(name: str) -> None:
    content = AUTHORED[name]()
    assert_bit_equal(
        reference_outputs(whole(Model.from_bytes(content)).to_bytes()), reference_outputs(content)
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_graph_cut_is_bit_equal(seed: int) -> None:
    content = random_graph(seed)
    assert_bit_equal(
        reference_outputs(whole(Model.from_bytes(content)).to_bytes(), 1), reference_outputs(content, 1)
    )


@pytest.mark.parametrize(
    "name",
    ["okay_nabu", "hand_recrop", "image_classification", "anomaly_detection", "keyword_spotting"],
)
def test_real_model_cut_is_bit_equal(name: str, model_file: ModelFile) -> None:
    path = model_file(name)
    assert_bit_equal(
        reference_outputs(whole(Model.load(path)).to_bytes(), 2), reference_outputs(path.read_bytes(), 2)
    )


def test_sparse_real_model_runs_after_the_cut(model_file: ModelFile) -> None:
    segment = whole(Model.load(model_file("face_detection_full_range_sparse")))
    reference_interpreter(segment.to_bytes())


def test_the_older_runtime_takes_the_cut() -> None:
    tflite = pytest.importorskip(
        "tflite_runtime.interpreter", reason="tflite-runtime exists up to Python 3.11"
    )
    for name in (
        "branchy",
        "int8_per_channel",
        "lstm_state",
        "resource_variables",
        "while_loop",
        "custom_op",
    ):
        segment = whole(Model.from_bytes(AUTHORED[name]()))
        made = tflite.Interpreter(model_content=segment.to_bytes())
        made.allocate_tensors()
        made.invoke()


def test_two_segments_chain_to_the_whole() -> None:
    content = AUTHORED["branchy"]()
    model = Model.from_bytes(content)
    graph = model.subgraphs[0]
    wanted = reference_outputs(content, 1)[0]
    for at in range(1, len(graph.operators)):
        first, second = graph.operators[:at], graph.operators[at:]
        made = {t for o in first for t in o.outputs} | set(graph.inputs)
        read = {t for o in second for t in o.inputs} | set(graph.outputs)
        crossing = sorted(made & read)
        head = reference_interpreter(
            cut(model, 0, range(at), graph.inputs, [t for t in crossing if t not in graph.inputs]).to_bytes()
        )
        tail = reference_interpreter(
            cut(model, 0, range(at, len(graph.operators)), crossing, graph.outputs).to_bytes()
        )
        image = np.random.default_rng(0).standard_normal((1, 8, 8, 4)).astype(np.float32)
        head.set_tensor(head.get_input_details()[0]["index"], image)
        head.invoke()
        given = [head.get_tensor(d["index"]) for d in head.get_output_details()]
        given = [image] * (graph.inputs[0] in crossing) + given
        for detail, value in zip(tail.get_input_details(), given, strict=True):
            tail.set_tensor(detail["index"], value)
        tail.invoke()
        assert_bit_equal([[tail.get_tensor(d["index"]) for d in tail.get_output_details()]], [wanted])


def test_operators_out_of_order_run_when_written_in_order() -> None:
    model = Model.from_bytes(AUTHORED["shuffled_order"]())
    graph = model.subgraphs[0]
    have, order = set(graph.inputs), []
    while len(order) < len(graph.operators):
        for operator in graph.operators:
            if operator.index not in order and all(
                t in have or graph.tensors[t].is_constant for t in operator.inputs
            ):
                order.append(operator.index)
                have.update(operator.outputs)
    assert order != sorted(order)
    outputs = reference_outputs(cut(model, 0, order, graph.inputs, graph.outputs).to_bytes(), 1)[0]
    assert all(np.isfinite(output).all() for output in outputs)


def test_other_subgraph_is_cut_by_its_number() -> None:
    content = AUTHORED["two_signatures"]()
    model = Model.from_bytes(content)
    runner = reference_interpreter(content).get_signature_runner("decode")
    code = np.linspace(-1, 1, 6, dtype=np.float32).reshape(1, 6)
    wanted = runner(code=code)
    made = reference_interpreter(whole(model, 1).to_bytes()).get_signature_runner()
    got = made(in0=code)
    assert got["out0"].tobytes() == wanted["raw"].tobytes()
    assert got["out1"].tobytes() == wanted["positive"].tobytes()


def test_only_what_is_needed_comes_along() -> None:
    model = Model.from_bytes(AUTHORED["nested_control"]())
    last = len(model.subgraphs[0].operators) - 1
    operator = model.subgraphs[0].operators[last]
    lone = Model.from_bytes(cut(model, 0, [last], operator.inputs[:1], operator.outputs).to_bytes())
    assert len(lone.subgraphs) == 1
    assert len(lone.subgraphs[0].tensors) == 4
    assert len(lone.table["operator_codes"]) == 1
    assert len(lone.table["buffers"]) == 3
    loop = model.subgraphs[0].operators[1]
    alone = Model.from_bytes(cut(model, 0, [1], [loop.inputs[1]], loop.outputs).to_bytes())
    assert len(alone.subgraphs) == 5
    assert alone.subgraphs[0].operators[0].subgraphs == (1, 2)
    inner = alone.subgraphs[2].operators[1]
    assert inner.op_type == "IF"
    assert inner.subgraphs == (3, 4)


def test_a_shared_buffer_comes_along_once() -> None:
    model = Model.from_bytes(AUTHORED["shared_constants"]())
    segment = whole(model)
    sizes = [constant.size_bytes for constant in segment.constants]
    assert sizes.count(8 * 3 * 3 * 8 * 4) == 1


def test_constants_are_not_copied() -> None:
    content = AUTHORED["conv_chain"]()
    model = Model.from_bytes(content)
    segment = whole(model)
    assert segment.constants
    kernel = max(segment.data.values(), key=len)
    assert any(kernel is model.constant(number) for number in range(len(model.table["buffers"])))


def test_shapes_replace_those_of_the_model() -> None:
    b = Builder()
    g = b.graph()
    x = g.input((1, 4), shape_signature=(-1, 4))
    y = g.make("RELU", [x], (1, 4), shape_signature=(-1, 4))
    g.output(y)
    model = Model.from_bytes(b.finish())
    kept = Model.from_bytes(whole(model).to_bytes()).subgraphs[0]
    assert [t.shape_signature for t in kept.tensors] == [(-1, 4), (-1, 4)]
    fixed = Model.from_bytes(whole(model, shapes={x: (5, 4), y: (5, 4)}).to_bytes()).subgraphs[0]
    assert [(t.shape, t.shape_signature) for t in fixed.tensors] == [((5, 4), ())] * 2


def test_metadata_that_concerns_running_is_kept() -> None:
    b = Builder()
    g = b.graph()
    g.output(g.unary("RELU", g.input((1, 4))))
    b.metadata("min_runtime_version", b"1.5.0".ljust(16, b"\0"))
    b.metadata("TFLITE_METADATA", bytes(1000))
    cut_model = Model.from_bytes(whole(Model.from_bytes(b.finish())).to_bytes())
    assert list(cut_model.metadata) == ["min_runtime_version"]
    assert bytes(cut_model.metadata["min_runtime_version"]).startswith(b"1.5.0")


def test_names_of_many_outputs_sort_in_their_order() -> None:
    b = Builder()
    g = b.graph()
    g.output(*g.split(g.input((1, 24)), 12))
    signature = Model.from_bytes(whole(Model.from_bytes(b.finish())).to_bytes()).signatures[0]
    names = list(signature.outputs)
    assert names == sorted(names)
    assert names[0] == "out00"
    assert list(signature.inputs) == ["in0"]


def test_block_quantization_brings_its_scales_along() -> None:
    b = Builder()
    g = b.graph()
    x = g.input((1, 4))
    g.tensor((9,), name="unrelated")
    scales = g.constant(np.ones((4, 1), np.float16), "scales")
    weights = g.constant(np.zeros((4, 4), np.int8), "weights", quantization=Quantization((), ()))
    quantization = g.graph.tensors[weights].quantization
    quantization.detailsType = fb.QuantizationDetails.BlockwiseQuantization
    quantization.details = fb.BlockwiseQuantizationT(scales=scales, blockSize=4)
    g.output(g.dense(x, 4, weights=weights))
    cut_model = Model.from_bytes(whole(Model.from_bytes(b.finish())).to_bytes())
    names = [tensor.name for tensor in cut_model.subgraphs[0].tensors]
    assert "unrelated" not in names
    table = cut_model.table["subgraphs"][0]["tensors"][names.index("weights")]
    assert table["quantization"]["details"]["scales"] == names.index("scales")


def test_data_behind_the_flatbuffer_come_inside() -> None:
    b = Builder()
    g = b.graph()
    x = g.input((1, 4))
    kernel = g.weights(4, 4)
    y = g.tensor((1, 4))
    g.op("CUSTOM", [g.dense(x, 4, weights=kernel)], [y], custom_code="Later")
    g.output(y)
    data = b.model.buffers[g.graph.tensors[kernel].buffer].data.tobytes()
    options = b"options of the custom operator"
    buffer = b.model.buffers[g.graph.tensors[kernel].buffer]
    operator = g.graph.operators[1]
    buffer.data = None
    for base in (0, 4096):  # the first round only tells how long the flatbuffer is
        buffer.offset, buffer.size = base + 16, len(data)
        operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize = base + 512, len(options)
        content = b.finish()
    assert len(content) <= 4096
    content = content.ljust(4096 + 16, b"\0") + data
    content = content.ljust(4096 + 512, b"\0") + options
    model = Model.from_bytes(content)
    assert model.subgraphs[0].tensors[kernel].is_constant
    assert bytes(model.constant(g.graph.tensors[kernel].buffer)) == data
    segment = whole(model)
    inside = Model.from_bytes(segment.to_bytes())
    assert max(segment.data.values(), key=len) == data
    table = inside.table["subgraphs"][0]["operators"][1]
    assert bytes(table["custom_options"]) == options
    assert table["large_custom_options_offset"] == 0
    with pytest.raises(ModelError, match="outside the file"):
        Model.from_bytes(content[:-1])


def test_over_two_gigabytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "MAX_FLATBUFFER_BYTES", 4000)
    model = Model.from_bytes(AUTHORED["conv_chain"]())
    with pytest.raises(ModelError, match="2 GB") as caught:
        whole(model)
    assert "more segments" in caught.value.hint


def test_writes_the_file(tmp_path: Path) -> None:
    segment = whole(Model.from_bytes(AUTHORED["branchy"]()))
    path = tmp_path / "deep" / "segment.tflite"
    segment.write(path)
    assert path.read_bytes() == segment.to_bytes()
    assert [entry.name for entry in path.parent.iterdir()] == ["segment.tflite"]
