"""What one input of a model must be, and how shapes and counts are written in messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeplace.tflite.model import Tensor

_NUMPY_TYPE_OF = {"int4": "int8", "int2": "int8", "uint4": "uint8"}
"""TFLite types that numpy does not have, and what the runtime hands over instead."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What one input must be."""

    name: str
    tensor: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        """The numpy type's name, ``string`` for text."""
        return _NUMPY_TYPE_OF.get(self.tensor.dtype, self.tensor.dtype)

    def __str__(self) -> str:
        return f"{self.tensor.dtype} {shape_text(self.shape)}"


def input_specs(tensors: Sequence[Tensor], names: Sequence[str]) -> tuple[InputSpec, ...]:
    """The inputs of a graph, in order, from its tensors and their names."""
    return tuple(InputSpec(name, tensor) for name, tensor in zip(names, tensors, strict=True))


def shape_text(shape: Sequence[int | str]) -> str:
    """A shape for people: ``[1, 224, 224, 3]``."""
    return "[" + ", ".join(str(dimension) for dimension in shape) + "]"


def counted(number: int, noun: str) -> str:
    """``1 sample``, ``2 samples``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_line(error: Exception) -> str:
    """An error's message without what follows its first line; its type when it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
