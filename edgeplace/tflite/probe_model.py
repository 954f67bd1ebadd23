"""A tiny model that any float platform can run, for asking whether a platform is there at all."""

from __future__ import annotations

import functools

import numpy as np

PROBE_SHAPE = (1, 8, 8, 4)


@functools.cache
def probe_model() -> bytes:
    """A ``.tflite`` file: a 3x3 float convolution with ReLU and an addition, input and output ``1x8x8x4``.

    A convolution, since accelerators that decline to take lone elementwise operators still take one.
    """
    from edgeplace.tflite import schema  # slow to import, and most verbs probe nothing

    fb = schema.fb
    weights = np.random.default_rng(0).normal(0, 0.2, (4, 3, 3, 4)).astype(np.float32)
    bias = np.zeros(4, np.float32)
    buffers = [
        fb.BufferT(),
        *(fb.BufferT(data=np.frombuffer(a.tobytes(), np.uint8)) for a in (weights, bias)),
    ]

    def tensor(name: str, shape: tuple[int, ...], buffer: int = 0) -> object:
        return fb.TensorT(
            name=name, shape=np.array(shape, np.int32), type=fb.TensorType.FLOAT32, buffer=buffer
        )

    tensors = [
        tensor("input", PROBE_SHAPE),
        tensor("weights", weights.shape, 1),
        tensor("bias", bias.shape, 2),
        tensor("features", PROBE_SHAPE),
        tensor("output", PROBE_SHAPE),
    ]
    convolution = fb.OperatorT(
        opcodeIndex=0,
        inputs=[0, 1, 2],
        outputs=[3],
        builtinOptionsType=fb.BuiltinOptions.Conv2DOptions,
        builtinOptions=fb.Conv2DOptionsT(
            padding=fb.Padding.SAME,
            strideW=1,
            strideH=1,
            fusedActivationFunction=fb.ActivationFunctionType.RELU,
        ),
    )
    addition = fb.OperatorT(
        opcodeIndex=1,
        inputs=[3, 0],
        outputs=[4],
        builtinOptionsType=fb.BuiltinOptions.AddOptions,
        builtinOptions=fb.AddOptionsT(),
    )
    codes = [
        fb.OperatorCodeT(deprecatedBuiltinCode=code, builtinCode=code, version=1)
        for code in (fb.BuiltinOperator.CONV_2D, fb.BuiltinOperator.ADD)
    ]
    graph = fb.SubGraphT(
        name="probe", tensors=tensors, inputs=[0], outputs=[4], operators=[convolution, addition]
    )
    model = fb.ModelT(
        version=schema.SCHEMA_VERSION,
        operatorCodes=codes,
        subgraphs=[graph],
        buffers=buffers,
        description="probe",
    )
    return bytes(schema.pack(model))
