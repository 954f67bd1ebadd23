"""Small models with one trait each, written with the schema's object API: milliseconds to make, no TensorFlow.

``AUTHORED`` lists them by name; each entry is a function without arguments that gives the bytes of a ``.tflite``
file, the same bytes every time. All run on the reference kernels but those in ``NOT_RUNNABLE``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from flatbuffers import flexbuffers

from edgeplace.testing.control_models import (
    composite,
    if_branch,
    lstm_state,
    nested_control,
    resource_variables,
    svdf_state,
    two_signatures,
    while_loop,
)
from edgeplace.testing.model_builder import RELU, Builder, GraphBuilder, fb
from edgeplace.tflite.model import Quantization


def conv_chain() -> bytes:
    """A classifier without a branch: conv, depthwise, conv, pool, dense, softmax."""
    b = Builder(1)
    g = b.graph()
    x = g.input((1, 16, 16, 3), name="image")
    x = g.conv(x, 8, stride=2)
    x = g.depthwise(x)
    x = g.conv(x, 16, size=1)
    x = g.pool(x, 8)
    x = g.dense(g.reshape(x, (1, 16)), 10)
    g.output(g.make("SOFTMAX", [x], (1, 10), fb.SoftmaxOptionsT(beta=1.0), name="scores"))
    b.metadata("min_runtime_version", b"1.5.0".ljust(16, b"\0"))
    return b.finish()


def branchy() -> bytes:
    """Branches, a residual join, a long skip and two outputs."""
    b = Builder(2)
    g = b.graph()
    x = g.input((1, 8, 8, 4), name="image")
    stem = g.conv(x, 8)
    left = g.conv(g.depthwise(stem), 8, size=1)
    right = g.conv(stem, 8, size=1)
    joined = g.add(left, right)
    deep = g.add(joined, g.conv(g.depthwise(joined), 8, size=1))
    wide = g.concat([deep, stem])
    heat = g.make("LOGISTIC", [g.conv(wide, 2, size=1, activation=0)], (1, 8, 8, 2), name="heat")
    box = g.dense(g.reshape(g.pool(deep, 8), (1, 8)), 4)
    g.output(heat, box)
    return b.finish()


def multi_output() -> bytes:
    """SPLIT feeds three different roads; one of its parts is a graph output as it is."""
    b = Builder(3)
    g = b.graph()
    parts = g.split(g.conv(g.input((1, 4, 4, 2)), 12), 4)
    g.output(g.unary("TANH", parts[0]), parts[1], g.add(g.unary("RELU", parts[2]), parts[3]))
    return b.finish()


def shared_constants() -> bytes:
    """One buffer behind two tensors, and one constant tensor read by two operators."""
    b = Builder(4)
    g = b.graph()
    x = g.input((1, 6, 6, 8))
    first = g.weights(8, 3, 3, 8)
    twin = g.tensor((8, 3, 3, 8), buffer=g.graph.tensors[first].buffer)
    bias = g.weights(8)
    options = fb.Conv2DOptionsT(padding=0, strideW=1, strideH=1, fusedActivationFunction=RELU)
    for weights in (first, twin, first):
        x = g.make("CONV_2D", [x, weights, bias], (1, 6, 6, 8), options)
    g.output(x)
    return b.finish()


def fp16_weights() -> bytes:
    """float16 weights behind DEQUANTIZE; one of them read by two convolutions."""
    b = Builder(5)
    g = b.graph()
    x = g.input((1, 8, 8, 4))

    def half(*shape: int) -> int:
        values = g.constant((b.random.standard_normal(shape) * 0.3).astype(np.float16))
        return g.make("DEQUANTIZE", [values], shape, fb.DequantizeOptionsT())

    kernel, bias = half(4, 3, 3, 4), half(4)
    options = fb.Conv2DOptionsT(padding=0, strideW=1, strideH=1, fusedActivationFunction=RELU)
    y = g.make("CONV_2D", [x, kernel, bias], (1, 8, 8, 4), options)
    z = g.make("CONV_2D", [y, kernel, half(4)], (1, 8, 8, 4), options)
    g.output(g.add(y, z))
    return b.finish()


def sparse_weights() -> bytes:
    """A sparse (compressed row) weight matrix behind DENSIFY."""
    b = Builder(6)
    g = b.graph()
    x = g.input((1, 8))
    dense = b.random.standard_normal((6, 8)).astype(np.float32)
    dense[b.random.random((6, 8)) < 0.7] = 0
    rows, columns = np.nonzero(dense)
    segments = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=6)))).astype(np.int32)
    sparse = g.constant(dense[rows, columns], "sparse", shape=(6, 8))
    uint8 = fb.SparseIndexVector.Uint8Vector
    g.graph.tensors[sparse].sparsity = fb.SparsityParametersT(
        traversalOrder=[0, 1],
        dimMetadata=[
            fb.DimensionMetadataT(format=fb.DimensionType.DENSE, denseSize=6),
            fb.DimensionMetadataT(
                format=fb.DimensionType.SPARSE_CSR,
                arraySegmentsType=uint8,
                arraySegments=fb.Uint8VectorT(values=segments.astype(np.uint8)),
                arrayIndicesType=uint8,
                arrayIndices=fb.Uint8VectorT(values=columns.astype(np.uint8)),
            ),
        ],
    )
    weights = g.make("DENSIFY", [sparse], (6, 8), fb.DensifyOptionsT())
    y = g.dense(x, 6, weights=weights)
    g.output(g.dense(g.unary("RELU", y), 3))
    return b.finish()


def int8_per_channel() -> bytes:
    """A quantized body with per-channel weights and float input and output."""
    b = Builder(7)
    g = b.graph()
    x = g.input((1, 8, 8, 3))
    q_in = Quantization((0.05,), (3,))
    q_out = Quantization((0.1,), (-5,))
    x = g.make("QUANTIZE", [x], (1, 8, 8, 3), fb.QuantizeOptionsT(), "int8", quantization=q_in)
    for depth, channels in ((3, 4), (4, 4), (4, 4)):
        scales = tuple(float(s) for s in np.linspace(0.01, 0.03, channels, dtype=np.float32))
        kernel = g.constant(
            b.random.integers(-127, 128, (channels, 3, 3, depth)).astype(np.int8),
            quantization=Quantization(scales, (0,) * channels, 0),
        )
        scale_in = q_in.scales[0] if depth == 3 else q_out.scales[0]
        bias = g.constant(
            b.random.integers(-500, 500, channels).astype(np.int32),
            quantization=Quantization(tuple(s * scale_in for s in scales), (0,) * channels, 0),
        )
        options = fb.Conv2DOptionsT(padding=0, strideW=1, strideH=1)
        shape = (1, 8, 8, channels)
        y = g.make("CONV_2D", [x, kernel, bias], shape, options, "int8", quantization=q_out)
        if depth == channels:
            y = g.make("ADD", [x, y], shape, fb.AddOptionsT(), "int8", quantization=q_out)
        x = y
    g.output(g.make("DEQUANTIZE", [x], (1, 8, 8, 4), fb.DequantizeOptionsT()))
    return b.finish()


def optional_input() -> bytes:
    """FULLY_CONNECTED without a bias: the third input is -1."""
    b = Builder(16)
    g = b.graph()
    x = g.input((1, 6))
    g.output(g.dense(g.unary("RELU", g.dense(x, 5, bias=False)), 3, bias=False))
    return b.finish()


def output_consumed() -> bytes:
    """A graph output that another operator also reads."""
    b = Builder(17)
    g = b.graph()
    y = g.conv(g.input((1, 4, 4, 2)), 3)
    g.output(y, g.unary("LOGISTIC", y))
    return b.finish()


def input_as_output() -> bytes:
    """One graph input is given back as it came."""
    b = Builder(18)
    g = b.graph()
    x, other = g.input((1, 4)), g.input((1, 4))
    g.output(x, g.add(x, other))
    return b.finish()


def same_tensor_twice() -> bytes:
    """An operator reads one tensor twice, and the graph gives one tensor twice."""
    b = Builder(19)
    g = b.graph()
    x = g.unary("TANH", g.input((1, 4)))
    square = g.mul(x, x)
    g.output(square, g.concat([square, x, square]), square)
    return b.finish()


def constant_output() -> bytes:
    """One graph output is a constant, another is made from constants only."""
    b = Builder(20)
    g = b.graph()
    x = g.input((1, 4))
    fixed = g.weights(1, 3)
    half = g.constant(np.array([[1.5, -2.5]], np.float16))
    made = g.make("DEQUANTIZE", [half], (1, 2), fb.DequantizeOptionsT())
    g.output(g.unary("RELU", x), fixed, made)
    return b.finish()


def unused_outputs() -> bytes:
    """A part of a SPLIT, a whole operator and a graph input that nobody reads."""
    b = Builder(21)
    g = b.graph()
    x = g.input((1, 4, 4, 2))
    g.input((1, 3), name="ignored")
    first, second, _ = g.split(g.conv(x, 6), 3)
    g.unary("TANH", second)
    g.output(g.unary("RELU", first))
    return b.finish()


def zero_ops() -> bytes:
    """No operator at all: the outputs are the inputs in another order."""
    b = Builder(22)
    g = b.graph()
    x, y = g.input((1, 4)), g.input((2, 2))
    g.output(y, x)
    return b.finish()


def shuffled_order() -> bytes:
    """``branchy`` with its operators written in an order in which they cannot run (runtimes go in file order)."""
    b = Builder(23)
    g = b.graph()
    x = g.input((1, 8, 8, 4))
    stem = g.conv(x, 8)
    left, right = g.conv(stem, 8, size=1), g.depthwise(stem)
    g.output(g.unary("RELU", g.add(left, right)), g.pool(stem, 8))
    order = b.random.permutation(len(g.graph.operators))
    g.graph.operators = [g.graph.operators[i] for i in order]
    return b.finish()


def cycle_trap() -> bytes:
    """Squeeze-and-excite and a SHAPE / PACK side path: grouping neighbours by support makes segments need each other."""
    b = Builder(24)
    g = b.graph()
    x = g.conv(g.input((1, 8, 8, 4)), 8)
    axes = g.constant(np.array([1, 2], np.int32))
    squeezed = g.make("MEAN", [x, axes], (1, 1, 1, 8), fb.ReducerOptionsT(keepDims=True))
    gate = g.conv(g.conv(squeezed, 2, size=1), 8, size=1, activation=0)
    excited = g.mul(x, g.unary("LOGISTIC", gate))
    shape = g.make("SHAPE", [excited], (4,), fb.ShapeOptionsT(outType=2), "int32")
    begin, end, step = (g.constant(np.array([n], np.int32)) for n in (0, 1, 1))
    options = fb.StridedSliceOptionsT(shrinkAxisMask=1)
    batch = g.make("STRIDED_SLICE", [shape, begin, end, step], (), options, "int32")
    flat = g.constant(np.array(512, np.int32))
    target = g.make("PACK", [batch, flat], (2,), fb.PackOptionsT(valuesCount=2), "int32")
    y = g.make("RESHAPE", [g.conv(excited, 8, size=1), target], (1, 512))
    g.output(g.dense(y, 3))
    return b.finish()


def dynamic_reshape() -> bytes:
    """RESHAPE to a shape that an input says: sizes are known only while running."""
    b = Builder(25)
    g = b.graph()
    x, target = g.input((2, 6)), g.input((2,), "int32", "target")
    y = g.make("RESHAPE", [g.unary("TANH", x), target], (1, 1), shape_signature=(-1, -1))
    y = g.make("ABS", [y], (1, 1), fb.AbsOptionsT(), shape_signature=(-1, -1))
    g.output(y, g.unary("RELU", x))
    return b.finish()


def dynamic_where() -> bytes:
    """WHERE: as many rows as there are positive values."""
    b = Builder(26)
    g = b.graph()
    x = g.input((1, 8))
    zero = g.constant(np.zeros((1,), np.float32))
    positive = g.make("GREATER", [x, zero], (1, 8), fb.GreaterOptionsT(), "bool")
    where = g.make("WHERE", [positive], (0, 2), fb.WhereOptionsT(), "int64", shape_signature=(-1, 2))
    found = g.make("GATHER_ND", [x, where], (0,), fb.GatherNdOptionsT(), shape_signature=(-1,))
    g.output(g.make("NEG", [found], (0,), fb.NegOptionsT(), shape_signature=(-1,)), g.unary("RELU", x))
    return b.finish()


def strings() -> bytes:
    """String tensors: a string input and a string constant, gathered and compared."""
    b = Builder(27)
    g = b.graph()
    words = g.input((3,), "string", "words")
    wanted = g.constant(np.frombuffer(_string_buffer([b"yes"]), np.uint8), dtype="string", shape=(1,))
    index = g.constant(np.array([2, 0], np.int32))
    picked = g.make("GATHER", [words, index], (2,), fb.GatherOptionsT(), "string")
    g.output(picked, g.make("EQUAL", [picked, wanted], (2,), fb.EqualOptionsT(), "bool"))
    return b.finish()


def _string_buffer(items: list[bytes]) -> bytes:
    """The runtime's packing of strings: count, offsets (one more than strings), then the characters."""
    first = 4 * (len(items) + 2)
    offsets = np.cumsum([first, *(len(item) for item in items)])
    return np.array([len(items), *offsets], np.int32).tobytes() + b"".join(items)


def int4_weights() -> bytes:
    """Two 4-bit weights in a byte, read by an int8 FULLY_CONNECTED."""
    b = Builder(28)
    g = b.graph()
    q = Quantization((0.1,), (0,))
    x = g.make("QUANTIZE", [g.input((1, 8))], (1, 8), fb.QuantizeOptionsT(), "int8", quantization=q)
    packed = b.random.integers(0, 256, 16).astype(np.uint8)
    weights = g.constant(packed, dtype="int4", shape=(4, 8), quantization=Quantization((0.05,), (0,)))
    bias = g.constant(np.arange(4, dtype=np.int32), quantization=Quantization((0.005,), (0,)))
    y = g.make(
        "FULLY_CONNECTED", [x, weights, bias], (1, 4), fb.FullyConnectedOptionsT(), "int8", quantization=q
    )
    g.output(g.make("DEQUANTIZE", [y], (1, 4), fb.DequantizeOptionsT()))
    return b.finish()


def custom_op() -> bytes:
    """A custom operator with options that the runtimes bring along: detection post-processing."""
    b = Builder(29)
    g = b.graph()
    boxes = g.make("LOGISTIC", [g.input((1, 6, 4))], (1, 6, 4), name="boxes")
    scores = g.make("LOGISTIC", [g.input((1, 6, 3))], (1, 6, 3), name="scores")
    anchors = g.constant(b.random.random((6, 4)).astype(np.float32))
    fbb = flexbuffers.Builder()
    with fbb.Map():
        for key, number in (("max_detections", 3), ("max_classes_per_detection", 1), ("num_classes", 2)):
            fbb.Int(key, number)
        for key, real in (("y_scale", 10.0), ("x_scale", 10.0), ("h_scale", 5.0), ("w_scale", 5.0)):
            fbb.Float(key, real)
        fbb.Float("nms_score_threshold", 0.1)
        fbb.Float("nms_iou_threshold", 0.6)
        fbb.Bool("use_regular_nms", False)
    outputs = [g.tensor(shape) for shape in ((1, 3, 4), (1, 3), (1, 3), (1,))]
    code = "TFLite_Detection_PostProcess"
    g.op("CUSTOM", [boxes, scores, anchors], outputs, custom_code=code, custom_options=bytes(fbb.Finish()))
    g.output(*outputs)
    return b.finish()


def unknown_custom_op() -> bytes:
    """A custom operator that no runtime has, between operators that all have."""
    b = Builder(30)
    g = b.graph()
    x = g.unary("RELU", g.input((1, 4)))
    y = g.tensor((1, 4))
    g.op("CUSTOM", [x], [y], custom_code="EdgePlaceUnknown", custom_options=b"\x01\x02\x03")
    g.output(g.unary("TANH", y))
    return b.finish()


def old_builtin_codes() -> bytes:
    """Operator codes in the byte-wide field only, as files of before 2021 have them."""
    b = Builder(31, legacy_opcodes=True)
    g = b.graph()
    g.output(g.dense(g.reshape(g.conv(g.input((1, 4, 4, 2)), 3), (1, 48)), 2))
    return b.finish()


def new_builtin_codes() -> bytes:
    """Operators whose code does not fit in the old field (GELU is 150, BROADCAST_TO 130)."""
    b = Builder(32)
    g = b.graph()
    x = g.make("GELU", [g.input((1, 4))], (1, 4), fb.GeluOptionsT(approximate=True))
    target = g.constant(np.array([3, 4], np.int32))
    wide = g.tensor((3, 4))
    g.op("BROADCAST_TO", [x, target], [wide], fb.BroadcastToOptionsT(), version=2)
    g.output(g.dense(wide, 2))
    return b.finish()


def random_graph(seed: int) -> bytes:
    """A random acyclic graph of convolutions, element-wise operators, splits, joins and residuals.

    One to three inputs, one to four outputs, 4 to 24 operators, all on (1, 4, 4, c) tensors; runs on any kernels.
    """
    b = Builder(seed)
    g = b.graph()
    draw = b.random
    live = [g.input((1, 4, 4, int(draw.integers(1, 4)) * 2)) for _ in range(draw.integers(1, 4))]

    def pick() -> int:
        # Recent tensors more often, so that chains form; now and then an old one, so that skips are long.
        back = min(int(draw.geometric(0.35)), len(live))
        return live[-back]

    for _ in range(draw.integers(4, 25)):
        _random_step(g, live, pick)
    read = {tensor for operator in g.graph.operators for tensor in operator.inputs}
    ends = [tensor for tensor in live if tensor not in read]
    extra = [
        tensor for tensor in live if tensor in read and tensor not in g.graph.inputs and draw.random() < 0.1
    ]
    g.output(*ends[:3], *extra[:1])
    return b.finish()


def _random_step(g: GraphBuilder, live: list[int], pick: Callable[[], int]) -> None:
    """Append one random operator and add what it makes to the live tensors."""
    draw = g.builder.random
    x = pick()
    channels = g.shape(x)[-1]
    kind = draw.choice(["conv", "depthwise", "unary", "join", "split", "concat", "constant"])
    if kind == "conv":
        live.append(g.conv(x, int(draw.integers(1, 4)) * 2, size=int(draw.choice([1, 3]))))
    elif kind == "depthwise":
        live.append(g.depthwise(x))
    elif kind == "join":
        other = pick()
        if g.shape(other) != g.shape(x):
            other = g.conv(other, channels, size=1)
        live.append(g.add(x, other) if draw.random() < 0.7 else g.mul(x, other))
    elif kind == "split" and channels % 2 == 0:
        live.extend(g.split(x, 2))
    elif kind == "concat" and channels <= 12:
        live.append(g.concat([x, pick()]))
    elif kind == "constant":
        live.append(g.add(x, g.weights(channels)))
    else:
        live.append(g.unary(str(draw.choice(["RELU", "TANH", "LOGISTIC", "ABS"])), x))


NOT_RUNNABLE: frozenset[str] = frozenset({"shuffled_order", "unknown_custom_op"})
"""Authored models that a runtime refuses or cannot run as they stand."""

AUTHORED: Mapping[str, Callable[[], bytes]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            conv_chain, branchy, multi_output, shared_constants, fp16_weights, sparse_weights, int8_per_channel,
            svdf_state, lstm_state, resource_variables, while_loop, if_branch, nested_control, composite,
            two_signatures, optional_input, output_consumed, input_as_output, same_tensor_twice, constant_output,
            unused_outputs, zero_ops, shuffled_order, cycle_trap, dynamic_reshape, dynamic_where, strings,
            int4_weights, custom_op, unknown_custom_op, old_builtin_codes, new_builtin_codes,
        )
    }
)  # fmt: skip
"""Every authored model by name."""
