"""Plain facts about a model for people and machines: what is in it, what it costs, what may not be separated."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from edgeplace.graph.contract import contract, format_ids
from edgeplace.graph.features import unit_features
from edgeplace.graph.graph import Graph, UnitGraph
from edgeplace.tflite.model import Tensor

if TYPE_CHECKING:
    from edgeplace.tflite.reader import Model


def inspect_model(model: Model, graph: Graph, *unit_graphs: UnitGraph) -> dict[str, Any]:
    """JSON-able facts about one entry of a model.

    Keys: ``model`` (the file), ``entry`` (which graph of it, its inputs and outputs), ``totals``, ``operator_counts``
    (by type, most frequent first), ``operators``, ``tensors``, ``inseparable`` (groups of operators that must stay
    together, each with its reasons), ``copied`` (constant producers that go along with their readers),
    ``doubtful_sizes`` (tensors whose shape in the file cannot be believed) and ``units`` (by granularity, for each of
    ``unit_graphs``).
    """
    counts = Counter(node.custom_code or node.op_type for node in graph.nodes)
    return {
        "model": {
            "name": model.name,
            "sha256": model.sha256,
            "size_bytes": model.size_bytes,
            "description": model.description,
            "subgraphs": len(model.subgraphs),
            "signatures": [signature.key for signature in model.signatures],
        },
        "entry": {
            "subgraph": graph.subgraph,
            "signature": graph.signature,
            "inputs": _ports(graph, graph.inputs, graph.input_names),
            "outputs": _ports(graph, graph.outputs, graph.output_names),
        },
        "totals": {
            "operators": len(graph.nodes),
            "macs": sum(node.macs for node in graph.nodes),
            "constant_bytes": _constant_bytes(model, graph),
            "activation_bytes": sum(
                tensor.size_bytes for tensor in graph.tensors if tensor.index in graph.producer
            ),
        },
        "operator_counts": dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        "operators": _operators(model, graph),
        "tensors": [_tensor(tensor) for tensor in graph.tensors],
        "inseparable": [
            {"nodes": list(unit.nodes), "text": format_ids(unit.nodes), "reasons": list(unit.bonds)}
            for unit in contract(graph, "op").units
            if unit.bonds
        ],
        "copied": sorted(graph.constant_nodes),
        "doubtful_sizes": sorted(graph.doubtful_sizes),
        "units": {unit_graph.granularity: _units(unit_graph) for unit_graph in unit_graphs},
    }


def _ports(graph: Graph, numbers: tuple[int, ...], names: tuple[str, ...]) -> list[dict[str, Any]]:
    ports = []
    for number, name in zip(numbers, names, strict=True):
        tensor = graph.tensors[number]
        signature = list(tensor.shape_signature or tensor.shape)
        ports.append(
            {
                "name": name,
                "tensor": number,
                "type": tensor.dtype,
                "shape": list(tensor.shape),
                "shape_signature": signature,
            }
        )
    return ports


def _operators(model: Model, graph: Graph) -> list[dict[str, Any]]:
    in_file = model.subgraphs[graph.subgraph].operators
    return [
        {
            "id": node.id,
            "type": node.op_type,
            "custom_code": node.custom_code,
            "version": in_file[node.id].version,
            "name": node.name,
            "inputs": list(node.inputs),
            "outputs": list(node.outputs),
            "subgraphs": list(in_file[node.id].subgraphs),
            "macs": node.macs,
            "weight_bytes": node.weight_bytes,
            "activation_bytes": node.activation_bytes,
        }
        for node in graph.nodes
    ]


def _tensor(tensor: Tensor) -> dict[str, Any]:
    quantization = tensor.quantization
    return {
        "index": tensor.index,
        "name": tensor.name,
        "type": tensor.dtype,
        "shape": list(tensor.shape),
        "shape_signature": list(tensor.shape_signature),
        "size_bytes": tensor.size_bytes,
        "constant": tensor.is_constant,
        "variable": tensor.is_variable,
        "sparse": tensor.is_sparse,
        "quantized": None
        if quantization is None
        else {"channels": len(quantization.scales), "axis": quantization.axis},
    }


def _units(unit_graph: UnitGraph) -> list[dict[str, Any]]:
    return [
        {
            "id": unit.id,
            "name": unit.name,
            "nodes": list(unit.nodes),
            "bonds": list(unit.bonds),
            "predecessors": list(unit_graph.predecessors[unit.id]),
            "successors": list(unit_graph.successors[unit.id]),
            "macs": features.macs,
            "weight_bytes": features.weight_bytes,
            "activation_bytes": features.activation_bytes,
            "input_bytes": features.input_bytes,
            "output_bytes": features.output_bytes,
        }
        for unit, features in zip(unit_graph.units, unit_features(unit_graph), strict=True)
    ]


def _constant_bytes(model: Model, graph: Graph) -> int:
    """Bytes of constant data in the file that this entry reads; a buffer behind several tensors counts once."""
    buffers = {
        tensor.buffer for tensor in graph.tensors if tensor.is_constant and tensor.index in graph.consumers
    }
    return sum(len(model.constant(buffer)) for buffer in buffers)
