"""The immutable graph of one entry (signature or subgraph 0) of a model: every operator is a node.

Source: patent claim 1, step "determine the compute nodes of the model, one per network layer".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeplace.tflite.model import Tensor


@dataclass(frozen=True, slots=True)
class Node:
    """One compute node: one operator of the graph.

    Attributes:
        id: The operator's number in its subgraph.
        op_type: Builtin operator name, or ``CUSTOM``.
        custom_code: Name of a custom operator, else empty.
        name: What a person calls it: the name of its first output tensor.
        inputs: Tensors it reads, in order; -1 is an optional input that is not given.
        outputs: Tensors it makes, in order.
        macs: Multiply-accumulate operations (0 where the operator has none).
        weight_bytes: Bytes of constant inputs (and of the constants in subgraphs it calls).
        activation_bytes: Bytes of the other inputs and of the outputs.
    """

    id: int
    op_type: str
    custom_code: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    macs: int
    weight_bytes: int
    activation_bytes: int


@dataclass(frozen=True, slots=True)
class Bond:
    """Nodes that must stay in one segment, and why.

    Attributes:
        nodes: Their ids in execution order, at least one. What lies on a path between them comes along, whoever
            contracts the graph (see ``contract``).
        reason: For people: the rule and the thing it is about.
    """

    nodes: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Graph:
    """Nodes, tensors and wiring of one entry of a model.

    Attributes:
        subgraph: Which subgraph of the file this is.
        signature: The signature's name, or empty for the plain subgraph.
        nodes: All nodes by id.
        tensors: All tensors by number, with the shapes that are in force (after ``--shape``).
        inputs: Tensor numbers a caller gives, in order.
        outputs: Tensor numbers a caller gets, in order.
        input_names: Names of the inputs, in order (of the signature when there is one, else of the tensors).
        output_names: Names of the outputs, in order.
        order: Node ids in a topological order (file order wherever that is one).
        producer: Tensor number -> node id, for tensors that a node makes.
        consumers: Tensor number -> node ids that read it, each once, in order.
        bonds: What must not be separated (DESIGN section 4).
        constant_nodes: Nodes that only turn constants into constants for other nodes (DEQUANTIZE of fp16 weights,
            DENSIFY ...): they go along with whoever reads them.
        doubtful_sizes: Tensors whose shape the file leaves open or gives wrongly, so that they are not cut at.
            Allocating the model tells it; with ``build_graph(shapes=...)`` they become tensors like any other.
    """

    model_name: str
    model_sha256: str
    subgraph: int
    signature: str
    nodes: tuple[Node, ...]
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    order: tuple[int, ...]
    producer: Mapping[int, int]
    consumers: Mapping[int, tuple[int, ...]]
    bonds: tuple[Bond, ...] = ()
    constant_nodes: frozenset[int] = frozenset()
    doubtful_sizes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Unit:
    """What a placement places: nodes that stay together.

    Attributes:
        id: Its number; units are numbered in a topological order.
        nodes: Its nodes in execution order. Every node that is not replicated is in exactly one unit.
        name: A short name for people: the names of its first and last node's type, or the node's name.
        bonds: Why nodes *must* stay together ("state: VAR_HANDLE 'count'", "dynamic shape of tensor 12 ..."),
            empty when they are together only because separating them cannot pay.
    """

    id: int
    nodes: tuple[int, ...]
    name: str
    bonds: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnitGraph:
    """A graph contracted to units. The units form an acyclic graph.

    Attributes:
        replicated: Nodes whose inputs are all constants (DEQUANTIZE of fp16 weights, DENSIFY ...). They are in no
            unit: each segment that reads what they make carries its own copy.
        successors: Unit id -> ids of units that read what it makes (or must run after it), in order.
        predecessors: The same, backwards.
    """

    graph: Graph
    granularity: str
    units: tuple[Unit, ...]
    replicated: frozenset[int]
    successors: tuple[tuple[int, ...], ...]
    predecessors: tuple[tuple[int, ...], ...]
