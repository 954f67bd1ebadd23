"""Codegen target ``python``: one readable ``runner.py`` that needs numpy and the runtime, nothing of EdgePlace.

What it opens and how is what the agent does (``device_agents/runtimes``), so that outputs are the agent's and times
are close. Only the loaders that the map uses are in the code.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgeplace.boards import PlatformSpec, platform_spec
from edgeplace.codegen.base import CodegenTarget, Content, Deployment, python_literal, templates
from edgeplace.codegen.litert_calls import accelerator_of, options_arguments
from edgeplace.delegate_map import DelegateMap, describe_agreement, dump_map, with_segment_files
from edgeplace.errors import InputError
from edgeplace.graph.contract import format_ids
from edgeplace.graph.graph import Graph
from edgeplace.graph.ops import CONTROL_FLOW_OPS, STATE_OPS
from edgeplace.placement.plan import Segment, Source

KERNELS = {"xnnpack": "AUTO", "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "reference": "BUILTIN_REF"}
"""Name of a kernel set -> member of the runtime's ``OpResolverType``."""


@dataclass(frozen=True)
class SegmentView:
    """What the templates need of a segment."""

    id: int
    file: str
    sha256: str
    platform: str
    takes: str
    stateful: bool
    nodes: str
    time: str


@dataclass(frozen=True)
class PlatformView:
    """What the templates need of a platform."""

    name: str
    function: str
    spec: dict[str, Any]
    module: str
    kernels: str
    accelerator: str
    fallback: bool
    arguments: tuple[tuple[str, str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class TensorView:
    """An input or output of the model; ``dtype`` is what numpy calls it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class PythonTarget(CodegenTarget):
    """Segments, map, README and ``runner.py``."""

    name = "python"

    def generate(self, deployment: Deployment) -> dict[str, Content]:
        """See the base class."""
        delegate_map = with_segment_files(
            deployment.delegate_map, deployment.plan, deployment.graph, [f.sha256 for f in deployment.files]
        )
        segments = [_segment_view(deployment, segment, delegate_map) for segment in deployment.plan.segments]
        used = list(dict.fromkeys(segment.platform for segment in segments))
        platforms = [_platform_view(name, delegate_map.platforms[name]) for name in used]
        _refuse_name_clashes(platforms)
        context = _context(deployment, delegate_map, segments, platforms)
        environment = templates()
        files: dict[str, Content] = {
            "runner.py": environment.get_template("python_runner.py.j2").render(context),
            "README.md": environment.get_template("python_readme.md.j2").render(context),
            "map.yaml": dump_map(delegate_map),
        }
        for view, file in zip(segments, deployment.files, strict=True):
            files[view.file] = file
        if deployment.constants:
            files["constants.npz"] = _npz(deployment.constants)
        return files


def _context(
    deployment: Deployment,
    delegate_map: DelegateMap,
    segments: list[SegmentView],
    platforms: list[PlatformView],
) -> Mapping[str, Any]:
    graph = deployment.graph
    loaders = {platform.spec["loader"] for platform in platforms}
    accelerators = {platform.accelerator for platform in platforms}
    result = delegate_map.result
    inputs = [_tensor_view(graph, t, n) for t, n in zip(graph.inputs, graph.input_names, strict=True)]
    return {
        "map": delegate_map,
        "agreement": describe_agreement(result.numeric) if result is not None else "",
        "segments": segments,
        "platforms": platforms,
        "loaders": loaders,
        "uses_gpu": "GPU" in accelerators,
        "uses_npu": "NPU" in accelerators,
        "uses_delegate": any(p.spec["loader"] == "interpreter" and p.spec["library"] for p in platforms),
        "uses_c_delegate": any(
            p.spec["loader"] == "tflite_c" and p.spec["options"].get("delegate") for p in platforms
        ),
        "uses_c_xnnpack": any(
            p.spec["loader"] == "tflite_c" and p.spec["options"].get("xnnpack", True) for p in platforms
        ),
        "finds_c_library": any(p.spec["loader"] == "tflite_c" and not p.spec["library"] for p in platforms),
        "needs_preparation": any(_needs_preparation(platform) for platform in platforms),
        "uses_environment": "GPU" in accelerators or any(platform.spec["env"] for platform in platforms),
        "preloads": any(platform.spec["preload"] for platform in platforms),
        "falls_back": any(platform.fallback for platform in platforms),
        "stateful": any(segment.stateful for segment in segments),
        "inputs": inputs,
        "input_rows": _rows([python_literal((t.name, t.dtype, t.shape)) for t in inputs]),
        "outputs": [
            _tensor_view(graph, t, n) for t, n in zip(graph.outputs, graph.output_names, strict=True)
        ],
        "gives": _places(deployment.plan.outputs),
        "constants": sorted(deployment.constants),
        "may_be_empty": _may_be_empty(graph),
        "packages": _packages(platforms, delegate_map),
    }


def _segment_view(deployment: Deployment, segment: Segment, delegate_map: DelegateMap) -> SegmentView:
    digits = len(str(len(deployment.plan.segments) - 1))
    entry = delegate_map.segments[segment.id]
    return SegmentView(
        id=segment.id,
        file=f"segments/{segment.id:0{digits}d}_{segment.platform}.tflite",
        sha256=deployment.files[segment.id].sha256,
        platform=segment.platform,
        takes=_places(segment.sources),
        stateful=_keeps_state(deployment.graph, segment),
        nodes=format_ids(segment.nodes),
        time="" if entry.p50_ms is None else f"{entry.p50_ms:g}",
    )


def _places(sources: Sequence[Source]) -> str:
    """Where the runner finds tensors, as source: pairs of a row and the position in it."""
    pairs = []
    for source in sources:
        if source.kind == "segment":
            pairs.append(f"({source.index}, {source.output})")
        else:
            pairs.append(f"({'INPUT' if source.kind == 'input' else 'CONSTANT'}, {source.index})")
    return f"({', '.join(pairs)}{',' if len(pairs) == 1 else ''})"


def _keeps_state(graph: Graph, segment: Segment) -> bool:
    """Whether anything in the segment may outlive a call. Called subgraphs are not looked into: they may."""
    return any(
        graph.nodes[node].op_type in STATE_OPS | CONTROL_FLOW_OPS
        or any(tensor >= 0 and graph.tensors[tensor].is_variable for tensor in graph.nodes[node].inputs)
        for node in segment.nodes
    )


def _may_be_empty(graph: Graph) -> bool:
    """Whether an output of the model can turn out to have no elements, which the interpreter refuses to hand out."""
    tensors = [graph.tensors[tensor] for tensor in graph.outputs]
    return any(0 in tensor.shape or -1 in tensor.shape_signature for tensor in tensors)


def _tensor_view(graph: Graph, tensor: int, name: str) -> TensorView:
    fact = graph.tensors[tensor]
    return TensorView(name, "object" if fact.dtype == "string" else fact.dtype, fact.shape)


def _rows(rows: Sequence[str]) -> str:
    """A tuple as source, one row per line; a single short row stays on the line."""
    if not rows:
        return "()"
    if len(rows) == 1 and len(rows[0]) < 90:
        return f"({rows[0]},)"
    return "(\n" + "".join(f"    {row},\n" for row in rows) + ")"


def _platform_view(name: str, spec: PlatformSpec) -> PlatformView:
    wire = platform_spec(name, spec)
    accelerator = ""
    arguments: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    module = kernels = ""
    if spec.loader == "compiled_model":
        accelerator = accelerator_of(spec).upper()
        arguments = options_arguments(name, spec)
    elif spec.loader == "interpreter":
        module = spec.runtime or "either"
        kernels = KERNELS[str(spec.options.get("kernels", "xnnpack"))]
    return PlatformView(
        name,
        "open_" + re.sub(r"[^A-Za-z0-9]", "_", name).lower(),
        wire,
        module,
        kernels,
        accelerator,
        bool(spec.options.get("fallback")) and accelerator in ("GPU", "NPU"),
        arguments,
    )


def _needs_preparation(platform: PlatformView) -> bool:
    """Whether something must be in place before this platform's libraries are loaded."""
    return bool(platform.spec["env"] or platform.spec["preload"] or platform.accelerator in ("GPU", "NPU"))


def _refuse_name_clashes(platforms: list[PlatformView]) -> None:
    functions: dict[str, str] = {}
    for platform in platforms:
        other = functions.setdefault(platform.function, platform.name)
        if other != platform.name:
            raise InputError(
                f"platforms '{other}' and '{platform.name}' are too alike to be names in a program",
                hint="rename one of them in the map",
            )


def _packages(platforms: list[PlatformView], delegate_map: DelegateMap) -> list[str]:
    """What to install, with the versions the map was measured with where it says so."""
    names = ["numpy"]
    loaders = {platform.spec["loader"] for platform in platforms}
    modules = {platform.module for platform in platforms}
    if "compiled_model" in loaders or {"litert", "either"} & modules:
        names.append("ai-edge-litert")
    if "tflite" in modules:
        names.append("tflite-runtime")
    if any(platform.accelerator == "NPU" for platform in platforms):
        names.append("openvino")
    if any(p.spec["loader"] == "tflite_c" and not p.spec["library"] for p in platforms):
        names.append("pymicro-wakeword")
    board = delegate_map.board.fingerprint
    versions = {name: board.get(f"runtime_{name}") for name in names}
    return [f"{name}=={version}" if version else name for name, version in versions.items()]


def _npz(constants: Mapping[int, Any]) -> bytes:
    """The constants that are outputs of the model themselves, by tensor number; text as fixed-size bytes."""
    stream = io.BytesIO()
    arrays = {f"t{number}": constants[number] for number in sorted(constants)}
    np.savez(stream, **{k: a.astype("S") if a.dtype == object else a for k, a in arrays.items()})
    return stream.getvalue()
