"""The authored models of :mod:`edgeplace.testing.models` as the objects that tests work on."""

from __future__ import annotations

from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import contract
from edgeplace.graph.graph import Graph, UnitGraph
from edgeplace.testing.models import AUTHORED
from edgeplace.tflite.reader import Model


def authored_model(name: str) -> Model:
    """The model, read from its bytes."""
    return Model.from_bytes(AUTHORED[name](), f"{name}.tflite")


def authored_graph(name: str) -> Graph:
    """Its main graph."""
    return build_graph(authored_model(name))


def authored_units(name: str) -> UnitGraph:
    """Its main graph with every operator a unit of its own."""
    return contract(authored_graph(name), "op")
