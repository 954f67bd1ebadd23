"""However many placements of a model are tried, its weights cross the link once: counted in bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeplace.agent_client.conversation import Conversation
from edgeplace.boards import load_board
from edgeplace.controller.prepare import workbench_on
from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import contract
from edgeplace.measure.board import bring_up
from edgeplace.measure.inputs import random_inputs
from edgeplace.measure.workbench import RunOutputs
from edgeplace.placement.plan import Placement
from edgeplace.placement.segmentation import make_plan
from edgeplace.tflite.reader import Model

PLACEMENTS = 12


@pytest.fixture
def sent_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of every payload that goes to the agent."""
    sizes: list[int] = []
    request = Conversation.request

    def counted(
        self: Conversation, header: dict[str, Any], payload: Any = (), *more: Any, **options: Any
    ) -> Any:
        sizes.append(sum(memoryview(piece).nbytes for piece in payload))
        return request(self, header, payload, *more, **options)

    monkeypatch.setattr(Conversation, "request", counted)
    return sizes


def test_weights_cross_once(
    sent_bytes: list[int],
    model_file: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # an agent that has seen nothing yet
    path = model_file("face_landmark")
    model = Model.load(path)
    graph = build_graph(model)
    unit_graph = contract(graph, "op")
    sample = random_inputs([graph.tensors[t] for t in graph.inputs], graph.input_names).samples[0]
    random = np.random.default_rng(0)
    totals: list[int] = []
    with bring_up(load_board("local", platforms=("cpu1", "twin=cpu1,threads=1"))) as board:
        workbench = workbench_on(board, model, graph, run_deadline_s=30.0)
        for _ in range(PLACEMENTS):
            names = tuple(str(random.choice(["cpu1", "twin"])) for _ in unit_graph.units)
            plan = make_plan(unit_graph, Placement(names))
            assert len(plan.segments) > 5  # each placement has other segments than the last one
            sent_bytes.clear()
            assert isinstance(workbench.run(plan, [sample]), RunOutputs)
            totals.append(sum(sent_bytes))
    size_bytes = path.stat().st_size
    inputs_bytes = sum(array.nbytes for array in sample)
    assert totals[0] > size_bytes * 0.9  # the first one brings the weights
    assert totals[0] < size_bytes * 1.2 + inputs_bytes
    # What is left for each further one are the files without their weights: the same for small and large models.
    assert max(totals[1:]) < size_bytes * 0.2
