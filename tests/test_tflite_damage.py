"""Damaged and hostile files: a clear error or a model in which every number is right; never a crash, hang or flood."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from model_files import model_path

from edgeplace.errors import ModelError
from edgeplace.testing.model_builder import Builder, GraphBuilder, fb
from edgeplace.testing.models import AUTHORED
from edgeplace.tflite.cutter import cut
from edgeplace.tflite.reader import Model
from edgeplace.tflite.schema_types import TABLE_TYPES, UNION_MEMBERS

ModelFile = Callable[[str], Path]
SMALL = (
    "conv_chain",
    "nested_control",
    "resource_variables",
    "sparse_weights",
    "custom_op",
    "two_signatures",
)
SOURCES = {
    name: AUTHORED[name]() for name in (*SMALL, "lstm_state", "int8_per_channel", "composite", "strings")
}


def outcome(content: bytes) -> str:
    """``refused`` or ``accepted``; anything else is a failure of the test."""
    try:
        model = Model.from_bytes(content, "damaged")
    except ModelError as error:
        return "refused" if error.where == "damaged" and len(str(error)) < 500 else f"badly told: {error}"
    assert_walkable(model)
    return "accepted"


def assert_walkable(model: Model) -> None:
    """Everything an accepted model refers to is there, whoever reads it."""
    fb.ModelT.InitFromPackedBuf(bytearray(model.data))  # the generated classes, which check nothing
    for graph in model.subgraphs:
        tensors = range(len(graph.tensors))
        assert all(t in tensors for t in (*graph.inputs, *graph.outputs))
        for tensor in graph.tensors:
            assert all(size >= 0 for size in tensor.shape)
            model.constant(tensor.buffer)
        for operator in graph.operators:
            assert all(t == -1 or t in tensors for t in operator.inputs)
            assert all(t in tensors for t in operator.outputs)
            assert all(s in range(len(model.subgraphs)) for s in operator.subgraphs)
    for signature in model.signatures:
        assert signature.subgraph in range(len(model.subgraphs))
    graph = model.subgraphs[0]
    if graph.inputs and graph.outputs:
        segment = cut(model, 0, range(len(graph.operators)), graph.inputs, graph.outputs)
        Model.from_bytes(segment.to_bytes())


@pytest.mark.parametrize("name", [*SMALL, "branchy", "strings"])
def test_truncated_at_every_sixteenth(name: str) -> None:
    content = AUTHORED[name]()
    for part in range(16):
        with pytest.raises(ModelError):
            Model.from_bytes(content[: len(content) * part // 16])


@pytest.mark.parametrize("name", ["face_landmark", "okay_nabu", "face_detection_full_range_sparse"])
def test_truncated_real_model(name: str, tmp_path: Path) -> None:
    content = model_path(name).read_bytes()
    path = tmp_path / "cut_short.tflite"
    for part in range(16):
        path.write_bytes(content[: len(content) * part // 16])
        with pytest.raises(ModelError) as caught:
            Model.load(path)
        assert caught.value.hint


def damaged(change: Callable[[Builder, GraphBuilder], None]) -> bytes:
    """A small sound model with one thing changed."""
    b = Builder()
    g = b.graph()
    x = g.input((1, 4))
    y = g.dense(g.unary("RELU", x), 3)
    g.output(y)
    b.signature("serve", g, {"x": x}, {"y": y})
    b.metadata("note", b"hello")
    Model.from_bytes(b.finish())
    change(b, g)
    return b.finish()


def _set(path: str, value: Any) -> Callable[[Builder, GraphBuilder], None]:
    """Set an attribute below the model, given as ``subgraphs.0.tensors.1.buffer``."""

    def change(b: Builder, _: GraphBuilder) -> None:
        target: Any = b.model
        *steps, last = path.split(".")
        for step in steps:
            target = target[int(step)] if step.isdigit() else getattr(target, step)
        if last.isdigit():
            target[int(last)] = value
        else:
            setattr(target, last, value)

    return change


def _self_call(b: Builder, g: GraphBuilder) -> None:
    g.op("CALL_ONCE", [], [], fb.CallOnceOptionsT(initSubgraphIndex=0))


def _ring_of_calls(b: Builder, g: GraphBuilder) -> None:
    first, second = b.graph("a"), b.graph("b")
    for here, there in ((first, second), (second, first)):
        here.op("CALL_ONCE", [], [], fb.CallOnceOptionsT(initSubgraphIndex=there.index))


def _two_makers(b: Builder, g: GraphBuilder) -> None:
    g.op("RELU", [0], [g.graph.outputs[0]])


def _external(b: Builder, g: GraphBuilder) -> None:
    b.model.externalBufferGroups = [fb.ExternalBufferGroupT(name="weights.bin")]
    b.model.externalBuffers = [fb.ExternalBufferT(id=1, length=4)]


def _nameless_custom(b: Builder, g: GraphBuilder) -> None:
    g.op("CUSTOM", [0], [g.tensor((1, 4))])


WRONG: dict[str, tuple[Callable[[Builder, GraphBuilder], None], str]] = {
    "no subgraph": (_set("subgraphs", []), "no subgraph"),
    "subgraphs absent": (_set("subgraphs", None), "no subgraph"),
    "schema version": (_set("version", 2), "version 2"),
    "tensor's buffer": (_set("subgraphs.0.tensors.0.buffer", 99), "buffer number is 99"),
    "operator's input": (_set("subgraphs.0.operators.0.inputs", [77]), "input's tensor number is 77"),
    "operator's input -2": (_set("subgraphs.0.operators.0.inputs", [-2]), "is -2"),
    "operator's output": (_set("subgraphs.0.operators.0.outputs", [-1]), "output's tensor number is -1"),
    "intermediate": (_set("subgraphs.0.operators.0.intermediates", [50]), "intermediate's"),
    "graph input": (_set("subgraphs.0.inputs", [-1]), "input's tensor number is -1"),
    "graph output": (_set("subgraphs.0.outputs", [9]), "output's tensor number is 9"),
    "operator code": (_set("subgraphs.0.operators.0.opcodeIndex", 5), "operator code number is 5"),
    "builtin code": (_set("operatorCodes.0.builtinCode", 9999), "builtin 9999"),
    "nameless custom": (_nameless_custom, "without a name"),
    "negative shape": (_set("subgraphs.0.tensors.0.shape", [1, -4]), "negative"),
    "shape and data": (_set("subgraphs.0.tensors.2.shape", [3, 5]), "needs 60 bytes"),
    "rank": (_set("subgraphs.0.tensors.0.shape", [1] * 100), "100 dimensions"),
    "signature of shape": (_set("subgraphs.0.tensors.0.shapeSignature", [1, -3]), "below -1"),
    "tensor type": (_set("subgraphs.0.tensors.0.type", 99), "type number 99"),
    "signature's subgraph": (_set("signatureDefs.0.subgraphIndex", 3), "subgraph is 3"),
    "signature's tensor": (_set("signatureDefs.0.outputs.0.tensorIndex", 30), "is 30"),
    "metadata's buffer": (_set("metadata.0.buffer", 40), "metadata"),
    "self call": (_self_call, "calls itself"),
    "ring of calls": (_ring_of_calls, "calls itself"),
    "two makers": (_two_makers, "both make tensor"),
    "weights elsewhere": (_external, "weights.bin"),
    "data outside": (_set("buffers.1", fb.BufferT(offset=10**9, size=4)), "outside the file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_number_is_named(name: str) -> None:
    change, words = WRONG[name]
    with pytest.raises(ModelError) as caught:
        Model.from_bytes(damaged(change), "wrong.tflite")
    assert words in str(caught.value)
    assert caught.value.where == "wrong.tflite"


def test_two_outputs_of_one_name_are_refused() -> None:
    def change(b: Builder, g: GraphBuilder) -> None:
        b.model.signatureDefs[0].outputs *= 2

    with pytest.raises(ModelError, match="same name"):
        Model.from_bytes(damaged(change))


def _u32(content: bytes, position: int) -> int:
    return int(struct.unpack_from("<I", content, position)[0])


def _place_of_vector(content: bytes, slot: int) -> int:
    """Position of a vector that the root table refers to."""
    root = _u32(content, 0)
    vtable = root - struct.unpack_from("<i", content, root)[0]
    field = root + struct.unpack_from("<H", content, vtable + 4 + 2 * slot)[0]
    return field + _u32(content, field)


@pytest.mark.parametrize("slot", [1, 2, 4, 6, 7])
def test_absurd_vector_length(slot: int) -> None:
    content = bytearray(damaged(lambda b, g: None))
    struct.pack_into("<I", content, _place_of_vector(content, slot), 0x7FFFFFFF)
    with pytest.raises(ModelError, match="2147483647 elements"):
        Model.from_bytes(bytes(content))


def test_offset_to_itself() -> None:
    content = bytearray(damaged(lambda b, g: None))
    struct.pack_into("<I", content, _place_of_vector(content, 2) + 4, 0)
    with pytest.raises(ModelError, match=r"the offset of Model\.subgraphs"):
        Model.from_bytes(bytes(content))


def test_table_that_is_its_own_vtable() -> None:
    content = bytearray(damaged(lambda b, g: None))
    struct.pack_into("<i", content, _u32(content, 0), 0)
    with pytest.raises(ModelError, match="damaged"):
        Model.from_bytes(bytes(content))


def test_newer_field_and_newer_options_are_refused_with_the_reason() -> None:
    content = damaged(_set("subgraphs.0.operators.0.builtinOptionsType", 250))
    operator = fb.Model.GetRootAs(content, 0).Subgraphs(0).Operators(1)
    place = operator._tab.Pos + operator._tab.Offset(10)
    changed = bytearray(content)
    changed[place] = 250
    with pytest.raises(ModelError, match="of kind 250") as caught:
        Model.from_bytes(bytes(changed))
    assert "update" in caught.value.hint

    # A root table with an eleventh field, by hand: vtable, then the table.
    vtable = struct.pack("<2H", 4 + 2 * 11, 8) + struct.pack("<11H", *[0] * 10, 4)
    content = (
        struct.pack("<I4s", 8 + len(vtable) + 2, b"TFL3") + vtable + bytes(2) + struct.pack("<iI", 28, 7)
    )
    with pytest.raises(ModelError, match="newer than the schema"):
        Model.from_bytes(content)


def test_a_small_file_cannot_spell_out_a_huge_model() -> None:
    b = Builder()
    g = b.graph()
    x = g.input((1, 4))
    for _ in range(400):
        g.unary("RELU", x)
    g.output(x)
    for number in range(400):
        b.graph(f"g{number}")
    content = bytearray(b.finish())
    # All subgraphs become the first: 400 x 400 operators from a file that has room for 800.
    vector = _place_of_vector(content, 2)
    targets = [vector + 4 + 4 * n + _u32(content, vector + 4 + 4 * n) for n in range(401)]
    big = targets[0]
    for number in range(401):
        here = vector + 4 + 4 * number
        if big > here:
            struct.pack_into("<I", content, here, big - here)
    tracemalloc.start()
    with pytest.raises(ModelError, match="so often"):
        Model.from_bytes(bytes(content))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * len(content)


WORDS = (0, 1, 4, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


@pytest.mark.parametrize("name", ["nested_control", "sparse_weights"])
def test_every_word_overwritten(name: str) -> None:
    content = SOURCES[name]
    draw = random.Random(0)
    refused = 0
    for position in range(0, len(content) - 3, 4):
        changed = bytearray(content)
        struct.pack_into("<I", changed, position, draw.choice((*WORDS, position, len(content))))
        refused += outcome(bytes(changed)) == "refused"
    assert refused > len(content) // 4 // 10


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """An authored model with flipped bytes, overwritten integers, splices or a piece taken out."""
    content = bytearray(SOURCES[draw(st.sampled_from(sorted(SOURCES)))])
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["flip", "word", "half", "splice", "cut", "grow"]))
        position = draw(st.integers(0, max(len(content) - 9, 0)))
        if kind == "flip":
            content[position] ^= draw(st.integers(1, 255))
        elif kind == "word":
            value = draw(
                st.one_of(st.sampled_from(WORDS), st.integers(0, len(content)), st.integers(0, 2**32 - 1))
            )
            struct.pack_into("<I", content, position, value)
        elif kind == "half":
            struct.pack_into("<H", content, position, draw(st.integers(0, 2**16 - 1)))
        elif kind == "splice":
            start = draw(st.integers(0, len(content) - 1))
            length = draw(st.integers(1, 32))
            piece = content[start : start + length]
            content[position : position + len(piece)] = piece
        elif kind == "cut":
            del content[position : position + 4 * draw(st.integers(1, 8))]
        else:
            content[position:position] = bytes(4 * draw(st.integers(1, 8)))
        if len(content) < 64:
            break
    content[4:8] = b"TFL3"  # the identifier is checked first; keep it, to get further
    return bytes(content)


@settings(max_examples=1200, deadline=None, derandomize=True)
@given(content=mutations())
@example(content=b"\x08\0\0\0TFL3")
@example(content=b"\x08\0\0\0TFL3\x04\0\0\0")
def test_fuzz(content: bytes) -> None:
    assert outcome(content) in ("refused", "accepted")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(content=mutations())
def test_fuzz_memory(content: bytes) -> None:
    tracemalloc.start()
    try:
        Model.from_bytes(content)
    except ModelError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 100 * len(content) + 500_000


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=400))
def test_fuzz_noise_behind_the_identifier(noise: bytes) -> None:
    assert outcome(noise[:4].ljust(4, b"\x08") + b"TFL3" + noise[4:]) == "refused"


def test_no_table_of_the_schema_contains_itself() -> None:
    """What bounds the decoder's depth without a counter."""

    def depth(name: str, above: tuple[str, ...] = ()) -> int:
        assert name not in above
        below = []
        for field in TABLE_TYPES[name].fields.values():
            if field.kind == "union":
                below += UNION_MEMBERS[field.target].values()
            elif field.kind in ("table", "tables"):
                below.append(field.target)
        return 1 + max((depth(child, (*above, name)) for child in dict.fromkeys(below)), default=0)

    assert depth("Model") < 10
