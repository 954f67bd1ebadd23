"""What a plan takes from the model: stand-alone ``.tflite`` files of its segments, each cut once, and constants."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edgeplace.graph.contract import format_ids
from edgeplace.graph.features import replicas_for
from edgeplace.graph.graph import UnitGraph
from edgeplace.placement.plan import Plan, Segment
from edgeplace.tflite.cutter import cut
from edgeplace.tflite.segment_file import SegmentFile

if TYPE_CHECKING:
    from edgeplace.tflite.reader import Model

_MAX_KEPT = 4096
"""Files kept. Each is a skeleton of some kilobytes; its constants are views of the model."""


class SegmentCutter:
    """Cuts segments out of one model. Placements that share a segment share its file.

    The file is a function of the segment's nodes, inputs and outputs alone: neither its platform nor its place in the
    plan is in it, so that its hash names it wherever it turns up.
    """

    def __init__(self, model: Model, unit_graph: UnitGraph) -> None:
        self._model = model
        self._unit_graph = unit_graph
        graph = unit_graph.graph
        self._position = {node: at for at, node in enumerate(graph.order)}
        in_file = model.subgraphs[graph.subgraph].tensors
        self._shapes = {
            tensor.index: tensor.shape
            for tensor in graph.tensors
            if tensor.shape != in_file[tensor.index].shape
        }
        self._files: OrderedDict[tuple[tuple[int, ...], ...], SegmentFile] = OrderedDict()

    def file(self, segment: Segment) -> SegmentFile:
        """The file of a segment, with its copies of constant producers."""
        key = (segment.nodes, segment.inputs, segment.outputs)
        if key in self._files:
            self._files.move_to_end(key)
            return self._files[key]
        graph = self._unit_graph.graph
        copies = replicas_for(graph, segment.nodes, self._unit_graph.replicated)
        made = cut(
            self._model,
            graph.subgraph,
            sorted((*copies, *segment.nodes), key=self._position.__getitem__),
            segment.inputs,
            segment.outputs,
            shapes=self._shapes or None,
            name=f"nodes {format_ids(segment.nodes)}",
        )
        self._files[key] = made
        if len(self._files) > _MAX_KEPT:
            self._files.popitem(last=False)
        return made

    def constants(self, plan: Plan) -> dict[int, npt.NDArray[Any]]:
        """Data of the tensors that no segment makes and no file holds: tensor number -> a view of the model."""
        tensors = self._unit_graph.graph.tensors
        sources = (*plan.outputs, *(source for segment in plan.segments for source in segment.sources))
        return {
            tensor.index: np.frombuffer(
                self._model.constant(tensor.buffer), dtype=np.dtype(tensor.dtype)
            ).reshape(tensor.shape)
            for tensor in (tensors[source.index] for source in sources if source.kind == "constant")
        }
