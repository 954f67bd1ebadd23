"""What right outputs are on this board: the reference, the model's floor, and the judge of a placement.

The reference and its relatives run on the board itself, through the agent, so that a board with other float units is
compared with its own plain kernels.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from edgeplace.errors import InputError
from edgeplace.graph.contract import contract
from edgeplace.graph.graph import Graph, UnitGraph
from edgeplace.measure.agreement import (
    MIN_CALIBRATION_SAMPLES,
    Floor,
    Gate,
    Limit,
    compare,
    mismatch,
    worst,
)
from edgeplace.measure.inputs import InputSet, random_inputs
from edgeplace.measure.measurement import Agreement, Failure
from edgeplace.measure.metric import Metric
from edgeplace.measure.reference import (
    CALIBRATION_KERNELS,
    Kernels,
    ReferenceChoice,
    cache_key,
    next_reference,
)
from edgeplace.measure.workbench import Array, RunOutputs, Workbench, whole_plan
from edgeplace.placement.plan import Plan
from edgeplace.placement.segmentation import plan_of_groups

LOG = logging.getLogger(__name__)

BOUNDARY_BYTES_CAP = 64 * 1024 * 1024
"""Up to this much, the reference keeps every tensor between operators; above it only those between units."""

Outputs = tuple[Array, ...]


class OutputCache(Protocol):
    """Reference outputs of earlier runs, by key."""

    def reference_get(self, key: str) -> bytes | None:
        """What is kept under that key, ``None`` when nothing is."""

    def reference_put(self, key: str, data: bytes) -> bool:
        """Keep it, if there is room; says whether it is kept."""


@dataclass(frozen=True)
class Numerics:
    """What a placement's outputs are compared with, and how strictly.

    Attributes:
        choice: Which kernels the reference is from, and why not the better ones.
        inputs: The samples a placement is checked on.
        expected: The reference's outputs for each sample.
        floor: How far correct kernels are from each other on this model.
        gate: The limit in force: the looser of the user's and 1.5 times the floor.
    """

    choice: ReferenceChoice
    inputs: InputSet
    expected: tuple[Outputs, ...]
    floor: Floor
    gate: Gate
    graph: Graph
    metric: Metric | None = None

    def judge(self, run: RunOutputs, *, whole_cpu: bool = False) -> tuple[Agreement, str]:
        """How far a plan's outputs are from the reference's, the worst sample counting, and why that is too far.

        The reason is empty when it is not too far.
        """
        quantization = [self.graph.tensors[tensor].quantization for tensor in self.graph.outputs]
        pairs = list(zip(self.expected, run.outputs, strict=True))
        for expected, got in pairs:
            wrong_form = mismatch(expected, got)
            if wrong_form and not whole_cpu:
                return worst([compare(expected, got, quantization, self.floor.usual_peaks)]), wrong_form
        agreement = worst(
            [compare(expected, got, quantization, self.floor.usual_peaks) for expected, got in pairs]
        )
        if self.metric is not None:
            named = [dict(zip(self.graph.output_names, got, strict=True)) for got in run.outputs]
            agreement = replace(agreement, metric=self.metric(named, self.inputs.labels))
        verdict = self.gate.check(agreement, whole_cpu=whole_cpu)
        return agreement, "" if verdict.passed else verdict.reason


def kernels_platform(kernels: Kernels, runtime: str) -> dict[str, Any]:
    """A kernel set of the CPU as a platform on the wire."""
    return {
        "name": f"kernels-{kernels.name}",
        "kind": "cpu",
        "loader": "interpreter",
        "runtime": runtime,
        "options": {"kernels": kernels.name, "threads": kernels.threads},
    }


def calibrate(
    workbench: Workbench,
    inputs: InputSet,
    limit: Limit,
    *,
    runtime: str,
    runtime_version: str,
    machine: str,
    original: bool,
    metric: Metric | None = None,
    cache: OutputCache | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Numerics:
    """Run the whole model on the reference, builtin and XNNPACK kernels and derive the bound on disagreement.

    Args:
        limit: The user's own limits.
        runtime: Which TFLite runtime the kernels are of (``litert``, ``tflite`` or empty).
        original: Run the file as the user gave it; otherwise the whole graph cut as one piece (a signature, or shapes
            that are not the file's).

    Raises:
        NoFeasiblePlacementError: The model runs on no kernels of the CPU.
    """
    graph = workbench.graph
    calibration = _enough_samples(graph, inputs)
    outputs: dict[Kernels, tuple[Outputs, ...]] = {}
    failures: dict[Kernels, Failure] = {}
    for kernels in CALIBRATION_KERNELS:
        report(f"whole model on {kernels} kernels")
        workbench.add_platform(f"kernels-{kernels.name}", kernels_platform(kernels, runtime))
        key = cache_key(
            model_sha256=f"{graph.model_sha256}/{graph.signature}",
            inputs_sha256=calibration.sha256,
            kernels=kernels,
            runtime_version=runtime_version,
            machine=machine,
        )
        plan = whole_plan(graph, f"kernels-{kernels.name}")
        found = _outputs_of(workbench, plan, calibration, original=original, cache=cache, key=key)
        if isinstance(found, Failure):
            LOG.info("the whole model does not run on %s kernels: %s", kernels, found)
            failures[kernels] = found
        else:
            outputs[kernels] = found
    choice = next_reference(failures)
    quantization = [graph.tensors[tensor].quantization for tensor in graph.outputs]
    floor = Floor.calibrate(
        {kernels.name: list(of_kernels) for kernels, of_kernels in outputs.items()},
        quantization,
        reference=choice.kernels.name,
    )
    expected = outputs[choice.kernels][: len(inputs.samples)]
    return Numerics(
        choice=choice,
        inputs=inputs,
        expected=expected,
        floor=floor,
        gate=Gate(_limit_in_force(graph, limit, floor, metric, expected, inputs)),
        graph=graph,
        metric=metric,
    )


def reference_tensors(workbench: Workbench, unit_graph: UnitGraph, numerics: Numerics) -> Mapping[int, Array]:
    """What the reference kernels compute between operators for the first sample, by tensor number.

    Empty when the reference kernels cannot run the model in pieces; units are then tried without being compared.
    """
    graph = unit_graph.graph
    total_bytes = sum(t.size_bytes for t in graph.tensors if not t.is_constant)
    pieces = contract(graph, "op") if total_bytes <= BOUNDARY_BYTES_CAP else unit_graph
    platform = f"kernels-{numerics.choice.kernels.name}"
    plan = plan_of_groups(pieces, [(platform, (unit.id,)) for unit in pieces.units])
    ran = workbench.run(plan, numerics.inputs.samples[:1], intermediates=True)
    if isinstance(ran, Failure):
        LOG.warning("the reference does not run in pieces (%s); units are not compared alone", ran)
        return {}
    inputs = dict(zip(graph.inputs, numerics.inputs.samples[0], strict=True))
    return {**inputs, **ran.intermediates[0]}


def _outputs_of(
    workbench: Workbench,
    plan: Plan,
    inputs: InputSet,
    *,
    original: bool,
    cache: OutputCache | None,
    key: str,
) -> tuple[Outputs, ...] | Failure:
    """Outputs of a plan for every sample, from the cache when they are there."""
    found = _cached(cache, key)
    if found is not None:
        return found
    ran = workbench.run(plan, inputs.samples, original=original)
    if isinstance(ran, Failure):
        return ran
    if cache is not None:
        cache.reference_put(key, _to_bytes(ran.outputs))
    return ran.outputs


def _enough_samples(graph: Graph, inputs: InputSet) -> InputSet:
    """The user's samples, with seeded ones behind them up to the number a floor needs."""
    missing = MIN_CALIBRATION_SAMPLES - len(inputs.samples)
    if missing <= 0:
        return inputs
    tensors = [graph.tensors[tensor] for tensor in graph.inputs]
    more = random_inputs(tensors, graph.input_names, samples=missing, seed=0)
    return InputSet.of(
        (*inputs.samples, *more.samples), source=f"{inputs.source} and {missing} seeded samples"
    )


def _limit_in_force(
    graph: Graph,
    limit: Limit,
    floor: Floor,
    metric: Metric | None,
    expected: Sequence[Outputs],
    inputs: InputSet,
) -> Limit:
    if metric is None:
        return limit.looser(floor)
    named = [dict(zip(graph.output_names, sample, strict=True)) for sample in expected]
    reference_metric = metric(named, inputs.labels)
    if limit.metric is not None and reference_metric < limit.metric:
        raise InputError(
            f"the reference itself has a metric of {reference_metric:g}, below the {limit.metric:g} asked for",
            hint="lower --metric-min, or check that the inputs and labels are the model's",
        )
    # The task decides: a model that ends in NMS or a threshold differs element by element and is still right.
    bare = Limit(cosine=None, snr_db=None, max_abs=None, equal_share=None, metric=limit.metric)
    return bare.with_metric(reference_metric)


def _to_bytes(outputs: Sequence[Outputs]) -> bytes:
    stream = io.BytesIO()
    arrays: dict[str, Any] = {
        f"{sample}.{index}": array for sample, row in enumerate(outputs) for index, array in enumerate(row)
    }
    if any(array.dtype == object for array in arrays.values()):
        return b""  # strings are not cached: numpy would pickle them
    np.savez(stream, **arrays)
    return stream.getvalue()


def _cached(cache: OutputCache | None, key: str) -> tuple[Outputs, ...] | None:
    data = cache.reference_get(key) if cache is not None else None
    if not data:
        return None
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        rows: dict[int, dict[int, Array]] = {}
        for name in arrays.files:
            sample, index = name.split(".")
            rows.setdefault(int(sample), {})[int(index)] = arrays[name]
    return tuple(tuple(rows[s][i] for i in sorted(rows[s])) for s in sorted(rows))
