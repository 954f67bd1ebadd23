"""From a delegate map to deployment code."""

from __future__ import annotations

from pathlib import Path

from edgeplace.catalog import CODEGEN_TARGETS
from edgeplace.codegen.base import Deployment, write_files
from edgeplace.controller.prepare import graph_of_map
from edgeplace.controller.verify import model_of_map
from edgeplace.delegate_map import load_map, plan_from_map
from edgeplace.graph.contract import contract
from edgeplace.placement.segments import SegmentCutter
from edgeplace.tflite.reader import Model


def generate(map_path: Path, out: Path, *, target: str = "python", model: Path | None = None) -> list[str]:
    """Write deployment code for a map; gives the names of the files.

    Raises:
        ProfileError: The map is not valid, or not for this model.
        OutputError: The folder cannot be written.
    """
    generator = CODEGEN_TARGETS.get(target)()
    delegate_map = load_map(map_path)
    source = Model.load(model_of_map(map_path, delegate_map, model))
    graph = graph_of_map(delegate_map, source)
    plan = plan_from_map(delegate_map, graph)
    cutter = SegmentCutter(source, contract(graph, "op"))
    deployment = Deployment(
        delegate_map=delegate_map,
        plan=plan,
        graph=graph,
        files=[cutter.file(segment) for segment in plan.segments],
        constants=cutter.constants(plan),
    )
    files = generator.generate(deployment)
    write_files(files, out)
    return sorted(files)
