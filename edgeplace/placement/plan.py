"""Placements and plans: the words between the optimizer and the board.

A *placement* names one platform per unit (the patent's "sample platform configuration"). A *plan* is what runs:
segments in execution order, each on one platform, and the wiring between them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Placement:
    """One platform per unit, in unit order."""

    platforms: tuple[str, ...]

    @property
    def id(self) -> str:
        """A short, stable name: the same platforms give the same id in every process."""
        return hashlib.sha256("\0".join(self.platforms).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a tensor comes from when a plan runs.

    ``kind`` is ``input`` (``index`` = number of the graph input), ``segment`` (``index`` = segment id, ``output`` =
    number of its output) or ``constant`` (``index`` = tensor number whose data the model holds).
    """

    kind: Literal["input", "segment", "constant"]
    index: int
    output: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring nodes on one platform; becomes one stand-alone ``.tflite`` file.

    Attributes:
        id: Position in execution order.
        nodes: Node ids in execution order, without replicated constant producers.
        units: The units those nodes make up.
        inputs: Tensor numbers that come from outside, in the order the segment takes them.
        outputs: Tensor numbers that others need, in the order the segment gives them.
        sources: For each input, where it comes from.
    """

    id: int
    platform: str
    nodes: tuple[int, ...]
    units: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Segments in execution order and where each graph output comes from.

    Segments only read what earlier segments made, so a plan is acyclic by construction.
    """

    segments: tuple[Segment, ...]
    outputs: tuple[Source, ...]

    @property
    def id(self) -> str:
        """A short, stable name; placements that give the same segments on the same platforms share it."""
        text = repr([(s.platform, s.nodes, s.inputs, s.outputs) for s in self.segments])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def transfers(self) -> int:
        """Tensors handed over from one segment to another."""
        return sum(source.kind == "segment" for s in self.segments for source in s.sources)
