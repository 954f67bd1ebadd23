"""The facts ``edgeplace inspect`` prints."""

from __future__ import annotations

import json

import pytest

from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import contract
from edgeplace.graph.inspect import inspect_model
from edgeplace.testing.models import AUTHORED
from edgeplace.tflite.reader import Model


@pytest.mark.parametrize("name", sorted(AUTHORED))
def test_facts_are_plain_and_complete(name: str) -> None:
    model = Model.from_bytes(AUTHORED[name](), f"{name}.tflite")
    graph = build_graph(model)
    facts = inspect_model(model, graph, contract(graph, "op"), contract(graph, "unit"))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["model"]["name"] == f"{name}.tflite"
    assert facts["totals"]["operators"] == len(facts["operators"]) == sum(facts["operator_counts"].values())
    assert facts["totals"]["macs"] == sum(operator["macs"] for operator in facts["operators"])
    assert set(facts["units"]) == {"op", "unit"}
    for units in facts["units"].values():
        placed = [node for unit in units for node in unit["nodes"]]
        assert sorted([*placed, *facts["copied"]]) == list(range(len(graph.nodes)))


def test_what_may_not_be_separated_is_said_with_the_reason() -> None:
    model = Model.from_bytes(AUTHORED["resource_variables"]())
    facts = inspect_model(model, build_graph(model))
    (group,) = facts["inseparable"]
    assert len(group["nodes"]) > 3
    assert any(reason.startswith("state: VAR_HANDLE") for reason in group["reasons"])
    assert facts["units"] == {}


def test_ends_are_named_with_type_and_shape() -> None:
    model = Model.from_bytes(AUTHORED["conv_chain"]())
    facts = inspect_model(model, build_graph(model))
    assert facts["entry"]["inputs"] == [
        {
            "name": "image",
            "tensor": facts["entry"]["inputs"][0]["tensor"],
            "type": "float32",
            "shape": [1, 16, 16, 3],
            "shape_signature": [1, 16, 16, 3],
        }
    ]
    assert facts["entry"]["outputs"][0]["name"] == "scores"
    assert facts["totals"]["constant_bytes"] > 0
