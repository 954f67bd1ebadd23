"""Tiny graphs, unit graphs and placement spaces made by hand: no model file and no runtime behind them.

For tests of everything that works on units and placements (optimizers, segmentation, maps). A graph is given by its
edges; every node makes one float32 tensor, and every node is a unit of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edgeplace.graph.graph import Graph, Node, Unit, UnitGraph
from edgeplace.placement.space import PlacementSpace
from edgeplace.tflite.model import Tensor

CHAIN = "chain"
"""Each unit reads the one before it."""
RESIDUAL = "residual"
"""A chain in which every third unit also reads what stands three before it."""
BRANCHES = "branches"
"""The first unit feeds all the middle ones, the last one joins them."""

_OP_TYPES = ("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "FULLY_CONNECTED")


def toy_edges(nodes: int, form: str = CHAIN) -> tuple[tuple[int, int], ...]:
    """The edges (from node, to node) of a toy graph of that form.

    Raises:
        ValueError: The form is none of :data:`CHAIN`, :data:`RESIDUAL`, :data:`BRANCHES`.
    """
    chain = [(node, node + 1) for node in range(nodes - 1)]
    if form == CHAIN:
        return tuple(chain)
    if form == RESIDUAL:
        return tuple(sorted(chain + [(node - 3, node) for node in range(3, nodes, 3)]))
    if form == BRANCHES:
        middle = range(1, nodes - 1)
        ends = [(0, node) for node in middle] + [(node, nodes - 1) for node in middle]
        return tuple(sorted(ends)) if nodes > 2 else tuple(chain)
    raise ValueError(f"'{form}' is no form of a toy graph")


def toy_graph(
    nodes: int,
    edges: Iterable[tuple[int, int]] | None = None,
    *,
    op_types: Sequence[str] = _OP_TYPES,
    macs: Sequence[int] | None = None,
    elements: Sequence[int] | None = None,
) -> Graph:
    """A graph of ``nodes`` nodes over the given edges (a chain when there are none).

    Tensor 0 is the graph's input and feeds every node without a predecessor; tensor ``i + 1`` is what node ``i``
    makes. What nobody reads is an output of the graph.

    Args:
        edges: Pairs (from node, to node) with from < to.
        op_types: Types of the nodes, repeated as needed.
        macs: Multiply-accumulates of each node; by default unequal, from 1000 to 5000.
        elements: Elements of what each node makes; by default unequal, from 16 to 112.
    """
    pairs = sorted(set(toy_edges(nodes) if edges is None else edges))
    if any(not 0 <= source < target < nodes for source, target in pairs):
        raise ValueError("an edge goes from a lower to a higher node number")
    macs = macs or [1000 * (1 + 7 * node % 5) for node in range(nodes)]
    elements = elements or [16 * (1 + 5 * node % 7) for node in range(nodes)]
    tensors = [Tensor(0, "input", (1, 16), "float32", 0, False)]
    tensors += [
        Tensor(node + 1, f"t{node}", (1, elements[node]), "float32", 0, False) for node in range(nodes)
    ]
    made: list[Node] = []
    for node in range(nodes):
        inputs = tuple(source + 1 for source, target in pairs if target == node) or (0,)
        moved_bytes = sum(tensors[tensor].size_bytes for tensor in (*inputs, node + 1))
        op_type = op_types[node % len(op_types)]
        made.append(Node(node, op_type, "", f"t{node}", inputs, (node + 1,), macs[node], 64, moved_bytes))
    readers: dict[int, tuple[int, ...]] = {}
    for entry in made:
        for tensor in entry.inputs:
            readers[tensor] = (*readers.get(tensor, ()), entry.id)
    outputs = tuple(node + 1 for node in range(nodes) if node + 1 not in readers)
    return Graph(
        model_name="toy.tflite",
        model_sha256="0" * 64,
        subgraph=0,
        signature="",
        nodes=tuple(made),
        tensors=tuple(tensors),
        inputs=(0,),
        outputs=outputs,
        input_names=("input",),
        output_names=tuple(tensors[tensor].name for tensor in outputs),
        order=tuple(range(nodes)),
        producer={node + 1: node for node in range(nodes)},
        consumers=readers,
    )


def toy_unit_graph(units: int = 6, form: str = CHAIN) -> UnitGraph:
    """A unit graph in which unit ``i`` holds node ``i`` alone."""
    edges = toy_edges(units, form)
    return UnitGraph(
        graph=toy_graph(units, edges),
        granularity="op",
        units=tuple(Unit(unit, (unit,), f"t{unit}") for unit in range(units)),
        replicated=frozenset(),
        successors=tuple(tuple(to for start, to in edges if start == unit) for unit in range(units)),
        predecessors=tuple(tuple(start for start, to in edges if to == unit) for unit in range(units)),
    )


def toy_space(
    units: int = 6,
    platforms: Sequence[str] = ("cpu", "npu"),
    *,
    form: str = CHAIN,
    allowed: Mapping[int, Sequence[str]] | None = None,
) -> PlacementSpace:
    """A placement space over a toy unit graph.

    Args:
        allowed: Platforms of single units where they are not all of ``platforms``.
    """
    allowed = allowed or {}
    return PlacementSpace(
        unit_graph=toy_unit_graph(units, form),
        allowed=tuple(tuple(allowed.get(unit, platforms)) for unit in range(units)),
    )
