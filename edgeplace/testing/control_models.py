"""Small models with state, control flow or several entries; see :mod:`edgeplace.testing.models`."""

from __future__ import annotations

import numpy as np
from flatbuffers import flexbuffers

from edgeplace.testing.model_builder import RELU, Builder, GraphBuilder, fb


def svdf_state() -> bytes:
    """SVDF: its memory is a variable tensor that lives as long as the interpreter."""
    b = Builder(8)
    g = b.graph()
    x = g.unary("RELU", g.input((1, 4)))
    units, memory = 3, 5
    state = g.tensor((1, memory * units), name="memory", variable=True)
    inputs = [x, g.weights(units, 4), g.weights(units, memory), g.weights(units), state]
    y = g.make("SVDF", inputs, (1, units), fb.SVDFOptionsT(rank=1))
    g.output(g.dense(y, 2))
    return b.finish()


def lstm_state() -> bytes:
    """UNIDIRECTIONAL_SEQUENCE_LSTM: two variable tensors and many optional inputs that are not given."""
    b = Builder(9)
    g = b.graph()
    steps, depth, cells = 3, 4, 5
    x = g.input((1, steps, depth))
    inputs = [x]
    inputs += [g.weights(cells, depth) for _ in range(4)]
    inputs += [g.weights(cells, cells) for _ in range(4)]
    inputs += [-1, -1, -1]  # peephole
    inputs += [g.weights(cells) for _ in range(4)]
    inputs += [-1, -1]  # projection
    inputs += [
        g.tensor((1, cells), name="output_state", variable=True),
        g.tensor((1, cells), name="cell_state", variable=True),
    ]
    inputs += [-1, -1, -1, -1]  # layer normalization
    options = fb.UnidirectionalSequenceLSTMOptionsT(fusedActivationFunction=4, cellClip=10.0)
    y = g.make("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, (1, steps, cells), options)
    g.output(g.dense(g.reshape(y, (steps, cells)), 2))
    return b.finish()


def _variable(g: GraphBuilder, name: str) -> int:
    return g.make("VAR_HANDLE", [], (), fb.VarHandleOptionsT(container="", sharedName=name), "resource")


def resource_variables() -> bytes:
    """Two counters in resource variables, set once by an init subgraph; a stateless head behind them."""
    b = Builder(10)
    g = b.graph()
    init = b.graph("init")
    for name, start in (("sum", 0.5), ("last", -1.0)):
        value = init.constant(np.full((1, 4), start, np.float32))
        init.op("ASSIGN_VARIABLE", [_variable(init, name), value], [], fb.AssignVariableOptionsT())
    x = g.input((1, 4))
    g.op("CALL_ONCE", [], [], fb.CallOnceOptionsT(initSubgraphIndex=init.index))
    scaled = g.mul(x, g.weights(1, 4))
    handle, last = _variable(g, "sum"), _variable(g, "last")
    old = g.make("READ_VARIABLE", [handle], (1, 4), fb.ReadVariableOptionsT())
    total = g.add(old, scaled)
    g.op("ASSIGN_VARIABLE", [handle, total], [], fb.AssignVariableOptionsT())
    before = g.make("READ_VARIABLE", [last], (1, 4), fb.ReadVariableOptionsT())
    g.op("ASSIGN_VARIABLE", [last, scaled], [], fb.AssignVariableOptionsT())
    g.output(g.dense(total, 3, activation=RELU), g.add(before, scaled))
    return b.finish()


def _scalar(g: GraphBuilder, value: int) -> int:
    return g.constant(np.array(value, np.int32))


def while_loop() -> bytes:
    """WHILE with a counter and a float tensor, between two ordinary operators."""
    b = Builder(11)
    g = b.graph()
    cond, body = b.graph("cond"), b.graph("body")
    count = cond.input((), "int32")
    cond.input((1, 4))
    cond.output(cond.make("LESS", [count, _scalar(cond, 3)], (), fb.LessOptionsT(), "bool"))
    count, value = body.input((), "int32"), body.input((1, 4))
    count = body.make("ADD", [count, _scalar(body, 1)], (), fb.AddOptionsT(), "int32")
    body.output(count, body.add(body.mul(value, body.weights(1, 4)), body.weights(1, 4)))
    x = g.unary("TANH", g.input((1, 4)))
    start = _scalar(g, 0)
    results = [g.tensor((), "int32"), g.tensor((1, 4))]
    options = fb.WhileOptionsT(condSubgraphIndex=cond.index, bodySubgraphIndex=body.index)
    g.op("WHILE", [start, x], results, options)
    g.output(g.dense(results[1], 2), results[0])
    return b.finish()


def if_branch() -> bytes:
    """IF on a boolean input."""
    b = Builder(12)
    g = b.graph()
    then, other = b.graph("then"), b.graph("else")
    then.output(then.mul(then.input((1, 4)), then.weights(1, 4)))
    other.output(other.unary("NEG", other.input((1, 4))))
    which, x = g.input((), "bool", "which"), g.input((1, 4))
    options = fb.IfOptionsT(thenSubgraphIndex=then.index, elseSubgraphIndex=other.index)
    y = g.make("IF", [which, g.unary("RELU", x)], (1, 4), options)
    g.output(g.add(y, x))
    return b.finish()


def nested_control() -> bytes:
    """A WHILE whose body holds an IF whose branch calls a third subgraph; numbers are not in calling order."""
    b = Builder(13)
    g = b.graph()
    then, cond, other, body = b.graph("then"), b.graph("cond"), b.graph("else"), b.graph("body")
    count = cond.input((), "int32")
    cond.input((1, 4))
    cond.output(cond.make("LESS", [count, _scalar(cond, 4)], (), fb.LessOptionsT(), "bool"))
    then.output(then.mul(then.input((1, 4)), then.weights(1, 4)))
    other.output(other.add(other.input((1, 4)), other.weights(1, 4)))
    count, value = body.input((), "int32"), body.input((1, 4))
    early = body.make("LESS", [count, _scalar(body, 2)], (), fb.LessOptionsT(), "bool")
    options = fb.IfOptionsT(thenSubgraphIndex=then.index, elseSubgraphIndex=other.index)
    value = body.make("IF", [early, value], (1, 4), options)
    body.output(body.make("ADD", [count, _scalar(body, 1)], (), fb.AddOptionsT(), "int32"), value)
    x = g.unary("TANH", g.input((1, 4)))
    results = [g.tensor((), "int32"), g.tensor((1, 4))]
    loop = fb.WhileOptionsT(condSubgraphIndex=cond.index, bodySubgraphIndex=body.index)
    g.op("WHILE", [_scalar(g, 0), x], results, loop)
    g.output(g.dense(results[1], 2))
    return b.finish()


def composite() -> bytes:
    """STABLEHLO_COMPOSITE: an operator whose meaning is a subgraph (the second options union)."""
    b = Builder(14)
    g = b.graph()
    inner = b.graph("decomposition")
    inner.output(inner.add(inner.unary("TANH", inner.input((1, 4))), inner.weights(1, 4)))
    x = g.unary("RELU", g.input((1, 4)))
    attributes = flexbuffers.Dumps({"axis": 1})
    options = fb.StableHLOCompositeOptionsT(
        name="edgeplace.test",
        decompositionSubgraphIndex=inner.index,
        compositeAttributes=np.frombuffer(attributes, np.uint8),
        version=1,
    )
    y = g.make("STABLEHLO_COMPOSITE", [x], (1, 4), options)
    g.output(g.dense(y, 2))
    return b.finish()


def two_signatures() -> bytes:
    """Two entries over one shared weight buffer; subgraph 0 is not the whole model."""
    b = Builder(15)
    encode, decode = b.graph("encode"), b.graph("decode")
    x = encode.input((1, 6), name="features")
    kernel = encode.weights(6, 6)
    code = encode.unary("TANH", encode.dense(x, 6, weights=kernel))
    encode.output(code)
    z = decode.input((1, 6), name="code")
    shared = decode.tensor((6, 6), buffer=encode.graph.tensors[kernel].buffer)
    back = decode.dense(z, 6, weights=shared)
    decode.output(back, decode.unary("RELU", back))
    b.signature("encode", encode, {"features": x}, {"code": code})
    b.signature("decode", decode, {"code": z}, {"raw": back, "positive": back + 1})
    return b.finish()
