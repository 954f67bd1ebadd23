"""Write small ``.tflite`` files by hand: the schema's object API with the tedious parts taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeplace.tflite import schema
from edgeplace.tflite.model import Quantization

fb = schema.fb
Array = npt.NDArray[Any]
Shape = Sequence[int]

SAME, VALID = 0, 1
RELU, RELU6 = 1, 3


class Builder:
    """One model in the making.

    Args:
        seed: Seed of :attr:`random`, from which weights are drawn; the same seed gives the same file.
        legacy_opcodes: Write operator codes as files before schema version 3a do: only the byte-wide field.
    """

    def __init__(self, seed: int = 0, *, legacy_opcodes: bool = False) -> None:
        self.random = np.random.default_rng(seed)
        self.model = fb.ModelT(version=schema.SCHEMA_VERSION, description="authored")
        self.model.buffers = [fb.BufferT()]  # buffer 0 is empty by convention: "no data"
        self.model.operatorCodes = []
        self.model.subgraphs = []
        self.model.signatureDefs = []
        self.model.metadata = []
        self._legacy_opcodes = legacy_opcodes
        self._opcodes: dict[tuple[int, str, int], int] = {}

    def graph(self, name: str = "main") -> GraphBuilder:
        """A new subgraph; the first one is the model's entry."""
        graph = fb.SubGraphT(name=name, tensors=[], operators=[], inputs=[], outputs=[])
        self.model.subgraphs.append(graph)
        return GraphBuilder(self, graph, len(self.model.subgraphs) - 1)

    def buffer(self, data: bytes) -> int:
        """A new buffer with this content."""
        self.model.buffers.append(fb.BufferT(data=np.frombuffer(data, np.uint8)))
        return len(self.model.buffers) - 1

    def metadata(self, name: str, data: bytes) -> None:
        """Attach a metadata entry."""
        self.model.metadata.append(fb.MetadataT(name=name, buffer=self.buffer(data)))

    def signature(
        self, key: str, graph: GraphBuilder, inputs: Mapping[str, int], outputs: Mapping[str, int]
    ) -> None:
        """Name an entry: its subgraph and its inputs and outputs (name -> tensor number)."""
        self.model.signatureDefs.append(
            fb.SignatureDefT(
                signatureKey=key,
                subgraphIndex=graph.index,
                inputs=[fb.TensorMapT(name=name, tensorIndex=t) for name, t in inputs.items()],
                outputs=[fb.TensorMapT(name=name, tensorIndex=t) for name, t in outputs.items()],
            )
        )

    def opcode(self, op_type: str, custom_code: str, version: int) -> int:
        """Number of an operator code, entered on first use."""
        code = getattr(fb.BuiltinOperator, op_type)
        key = (code, custom_code, version)
        if key not in self._opcodes:
            self._opcodes[key] = len(self.model.operatorCodes)
            byte = min(code, schema.PLACEHOLDER_FOR_GREATER_CODES)
            self.model.operatorCodes.append(
                fb.OperatorCodeT(
                    deprecatedBuiltinCode=byte,
                    builtinCode=0 if self._legacy_opcodes else code,
                    customCode=custom_code or None,
                    version=version,
                )
            )
        return self._opcodes[key]

    def finish(self) -> bytes:
        """The file."""
        return bytes(schema.pack(self.model))


class GraphBuilder:
    """One subgraph in the making. Tensors are numbers; every ``make`` method returns the tensor it made."""

    def __init__(self, builder: Builder, graph: Any, index: int) -> None:
        self.builder = builder
        self.graph = graph
        self.index = index

    def tensor(
        self,
        shape: Shape,
        dtype: str = "float32",
        name: str = "",
        *,
        buffer: int = 0,
        quantization: Quantization | None = None,
        variable: bool = False,
        shape_signature: Shape | None = None,
    ) -> int:
        """A new tensor; without a name it is called ``t<number>``."""
        number = len(self.graph.tensors)
        tensor = fb.TensorT(
            shape=list(shape),
            type=schema.TENSOR_TYPES[dtype],
            name=name or f"t{number}",
            buffer=buffer,
            isVariable=variable,
            hasRank=True,
            shapeSignature=None if shape_signature is None else list(shape_signature),
        )
        if quantization is not None:
            tensor.quantization = fb.QuantizationParametersT(
                scale=list(quantization.scales),
                zeroPoint=list(quantization.zero_points),
                quantizedDimension=quantization.axis,
            )
        self.graph.tensors.append(tensor)
        return number

    def input(self, shape: Shape, dtype: str = "float32", name: str = "", **more: Any) -> int:
        """A new tensor that the caller gives."""
        number = self.tensor(shape, dtype, name or f"in{len(self.graph.inputs)}", **more)
        self.graph.inputs.append(number)
        return number

    def output(self, *tensors: int) -> None:
        """Give these tensors to the caller, after those already given."""
        self.graph.outputs.extend(tensors)

    def constant(self, array: Array, name: str = "", *, dtype: str = "", **more: Any) -> int:
        """A new tensor with data. ``dtype`` overrides the array's (packed 4-bit values in bytes need ``shape``)."""
        shape = more.pop("shape", array.shape)
        buffer = self.builder.buffer(np.ascontiguousarray(array).tobytes())
        return self.tensor(shape, dtype or array.dtype.name, name, buffer=buffer, **more)

    def weights(self, *shape: int, scale: float = 0.3) -> int:
        """A new constant of normally distributed floats."""
        return self.constant((self.builder.random.standard_normal(shape) * scale).astype(np.float32))

    def op(
        self,
        op_type: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Any = None,
        *,
        version: int = 1,
        custom_code: str = "",
        custom_options: bytes = b"",
        intermediates: Sequence[int] | None = None,
    ) -> None:
        """Append an operator. ``options`` is an ``...OptionsT`` object of either options union."""
        operator = fb.OperatorT(
            opcodeIndex=self.builder.opcode(op_type, custom_code, version),
            inputs=list(inputs),
            outputs=list(outputs),
            intermediates=None if intermediates is None else list(intermediates),
        )
        if custom_options:
            operator.customOptions = np.frombuffer(custom_options, np.uint8)
        if options is not None:
            union = type(options).__name__.removesuffix("T")
            if hasattr(fb.BuiltinOptions, union):
                operator.builtinOptionsType = getattr(fb.BuiltinOptions, union)
                operator.builtinOptions = options
            else:
                operator.builtinOptions2Type = getattr(fb.BuiltinOptions2, union)
                operator.builtinOptions2 = options
        self.graph.operators.append(operator)

    def shape(self, tensor: int) -> tuple[int, ...]:
        """Shape of a tensor made earlier."""
        return tuple(self.graph.tensors[tensor].shape)

    def make(
        self,
        op_type: str,
        inputs: Sequence[int],
        shape: Shape,
        options: Any = None,
        dtype: str = "float32",
        **more: Any,
    ) -> int:
        """Append an operator with one new output of this shape."""
        result = self.tensor(shape, dtype, **more)
        self.op(op_type, inputs, [result], options)
        return result

    def unary(self, op_type: str, x: int) -> int:
        """An operator without options whose result is like its input (RELU, LOGISTIC, TANH ...)."""
        return self.make(op_type, [x], self.shape(x))

    def add(self, a: int, b: int) -> int:
        """Sum; shapes broadcast."""
        return self.make("ADD", [a, b], _broadcast(self.shape(a), self.shape(b)), fb.AddOptionsT())

    def mul(self, a: int, b: int) -> int:
        """Product; shapes broadcast."""
        return self.make("MUL", [a, b], _broadcast(self.shape(a), self.shape(b)), fb.MulOptionsT())

    def conv(
        self,
        x: int,
        channels: int,
        size: int = 3,
        *,
        stride: int = 1,
        activation: int = RELU,
        weights: int | None = None,
    ) -> int:
        """CONV_2D with SAME padding; ``weights`` is a tensor (channels, size, size, in) or drawn."""
        batch, height, width, depth = self.shape(x)
        if weights is None:
            weights = self.weights(channels, size, size, depth)
        bias = self.weights(channels)
        options = fb.Conv2DOptionsT(
            padding=SAME, strideW=stride, strideH=stride, fusedActivationFunction=activation
        )
        shape = (batch, -(-height // stride), -(-width // stride), channels)
        return self.make("CONV_2D", [x, weights, bias], shape, options)

    def depthwise(self, x: int, size: int = 3, *, stride: int = 1) -> int:
        """DEPTHWISE_CONV_2D with SAME padding and multiplier 1."""
        batch, height, width, depth = self.shape(x)
        inputs = [x, self.weights(1, size, size, depth), self.weights(depth)]
        options = fb.DepthwiseConv2DOptionsT(
            padding=SAME, strideW=stride, strideH=stride, depthMultiplier=1, fusedActivationFunction=RELU6
        )
        return self.make(
            "DEPTHWISE_CONV_2D", inputs, (batch, -(-height // stride), -(-width // stride), depth), options
        )

    def dense(
        self, x: int, units: int, *, bias: bool = True, activation: int = 0, weights: int | None = None
    ) -> int:
        """FULLY_CONNECTED over the last dimension of a matrix."""
        batch, depth = self.shape(x)
        if weights is None:
            weights = self.weights(units, depth)
        inputs = [x, weights, self.weights(units) if bias else -1]
        return self.make(
            "FULLY_CONNECTED",
            inputs,
            (batch, units),
            fb.FullyConnectedOptionsT(fusedActivationFunction=activation),
        )

    def pool(self, x: int, size: int = 2, op_type: str = "AVERAGE_POOL_2D") -> int:
        """Pooling with stride = size."""
        batch, height, width, depth = self.shape(x)
        options = fb.Pool2DOptionsT(
            padding=VALID, strideW=size, strideH=size, filterWidth=size, filterHeight=size
        )
        return self.make(op_type, [x], (batch, height // size, width // size, depth), options)

    def reshape(self, x: int, shape: Shape) -> int:
        """RESHAPE to a constant shape."""
        target = self.constant(np.array(shape, np.int32))
        return self.make("RESHAPE", [x, target], shape, fb.ReshapeOptionsT(newShape=list(shape)))

    def concat(self, parts: Sequence[int], axis: int = -1) -> int:
        """CONCATENATION along an axis."""
        shape = list(self.shape(parts[0]))
        shape[axis] = sum(self.shape(part)[axis] for part in parts)
        return self.make("CONCATENATION", parts, shape, fb.ConcatenationOptionsT(axis=axis % len(shape)))

    def split(self, x: int, count: int, axis: int = -1) -> list[int]:
        """SPLIT into equal parts along an axis."""
        shape = list(self.shape(x))
        shape[axis] //= count
        parts = [self.tensor(shape) for _ in range(count)]
        axis_tensor = self.constant(np.array(axis % len(shape), np.int32))
        self.op("SPLIT", [axis_tensor, x], parts, fb.SplitOptionsT(numSplits=count))
        return parts


def _broadcast(a: Shape, b: Shape) -> tuple[int, ...]:
    return np.broadcast_shapes(tuple(a), tuple(b))
