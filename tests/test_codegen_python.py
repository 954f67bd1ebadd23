"""Generated Python: golden texts, clean code, and runs that give what direct interpreters give."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerators import c_library, require_gpu, require_npu
from delegate_build import build_test_delegate
from test_runtimes_delegate import elementwise

from edgeplace.boards import PlatformSpec, load_board, platform_spec, spec_from_wire
from edgeplace.codegen import Deployment, PythonTarget, write_files
from edgeplace.codegen.base import plain_text, python_literal
from edgeplace.delegate_map import (
    MAP_FORMAT,
    AgreementInfo,
    BoardInfo,
    DelegateMap,
    MapSegment,
    ModelInfo,
    Result,
    load_map,
    plan_from_map,
    spanning_nodes,
)
from edgeplace.errors import InputError
from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import contract
from edgeplace.graph.graph import Graph
from edgeplace.placement.plan import Plan, Source
from edgeplace.placement.segmentation import plan_of_groups
from edgeplace.placement.segments import SegmentCutter
from edgeplace.testing.models import AUTHORED
from edgeplace.testing.toy import toy_graph
from edgeplace.tflite.model import Tensor
from edgeplace.tflite.reader import Model
from edgeplace.tflite.segment_file import SegmentFile

GOLDEN = Path(__file__).resolve().parent / "golden" / "python"
ROOT = Path(__file__).resolve().parent.parent

CPU = PlatformSpec(kind="cpu", loader="interpreter", options={"kernels": "builtin", "threads": 2})
CPU_LITERT = CPU.model_copy(update={"runtime": "litert"})
NPU = PlatformSpec(kind="npu", loader="compiled_model", runtime="litert", options={"graph_backend": "cpu"})


def toy_deployment(
    platforms: Mapping[str, PlatformSpec],
    names: Sequence[str],
    changes: Mapping[str, Any] | None = None,
    constants: Mapping[int, Any] | None = None,
) -> Deployment:
    """A deployment over a chain of toy nodes: node ``i`` on ``names[i]``, with segment files of fixed hashes."""
    made = toy_graph(len(names))
    graph = Graph(**{**{name: getattr(made, name) for name in made.__dataclass_fields__}, **(changes or {})})
    unit_graph = contract(graph, "op")
    groups: list[tuple[str, list[int]]] = []
    for unit, name in enumerate(names):
        if not groups or groups[-1][0] != name:
            groups.append((name, []))
        groups[-1][1].append(unit)
    plan = plan_of_groups(unit_graph, groups)
    shas = [hashlib.sha256(str(segment.id).encode()).hexdigest() for segment in plan.segments]
    delegate_map = DelegateMap(
        format=MAP_FORMAT,
        model=ModelInfo(file="toy.tflite", sha256="0" * 64, nodes=len(names)),
        board=BoardInfo(
            name="toy",
            simulated=False,
            fingerprint={"runtime_numpy": "1.26.4", "runtime_ai-edge-litert": "2.3.0"},
        ),
        platforms=dict(platforms),
        segments=tuple(
            MapSegment(id=s.id, platform=s.platform, nodes=s.nodes, sha256=sha, p50_ms=0.25)
            for s, sha in zip(plan.segments, shas, strict=True)
        ),
        result=Result(p50_ms=0.51, ci95_ms=(0.5, 0.52), numeric=AgreementInfo(snr_db=60.0, cosine=0.99999)),
    )
    files = [SegmentFile(sha, 0, b"", (), {}) for sha in shas]
    return Deployment(delegate_map, plan, graph, files, constants or {})


def mixed() -> Deployment:
    """Two platforms, the usual case."""
    return toy_deployment({"cpu": CPU_LITERT, "npu": NPU}, ["cpu", "cpu", "npu", "npu"])


def everything() -> Deployment:
    """Every loader with every option, state, a constant output, text, names that need quoting."""
    platforms = {
        "cpu": CPU,
        "old-cpu": PlatformSpec(
            kind="cpu", loader="interpreter", runtime="tflite", options={"kernels": "reference"}
        ),
        "tpu": PlatformSpec(
            kind="edgetpu",
            loader="interpreter",
            library="libedgetpu.so.1",
            library_options={"device": "usb", "fast": True},
            env={"TPU_LOG": 'a "quoted" value'},
            preload=("libusb-1.0.so.0",),
        ),
        "gpu": PlatformSpec(
            kind="gpu", loader="compiled_model", options={"fallback": True, "enforce_f32": True}
        ),
        "npu": PlatformSpec(
            kind="npu",
            loader="compiled_model",
            options={
                "graph_backend": "CPU",
                "performance_mode": "latency",
                "openvino_libs": "/opt/openvino/libs",
                "threads": 3,
            },
        ),
        "c": PlatformSpec(
            kind="cpu",
            loader="tflite_c",
            options={"delegate": "/opt/x.so", "threads": 4},
            library_options={"k": 1},
        ),
        "c2": PlatformSpec(
            kind="cpu", loader="tflite_c", library="/opt/libtensorflowlite_c.so", options={"xnnpack": False}
        ),
    }
    made = toy_graph(7)
    tensors = list(made.tensors)
    tensors[0] = Tensor(0, "text\n", (2,), "string", 0, False)
    tensors[3] = Tensor(3, "state", (1, 4), "float32", 0, False, is_variable=True)
    tensors[7] = Tensor(7, 'out "1"', (1, 4), "float32", 0, False, shape_signature=(-1, 4))
    tensors.append(Tensor(8, "fixed", (2, 2), "float32", 0, True))
    changes = {
        "tensors": tuple(tensors),
        "outputs": (*made.outputs, 8),
        "input_names": ("text\n",),
        "output_names": ('out "1"', "fixed"),
    }
    constants = {8: np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)}
    names = ["cpu", "old-cpu", "tpu", "gpu", "npu", "c", "c2"]
    deployment = toy_deployment(platforms, names, changes, constants)
    assert deployment.plan.outputs[1] == Source("constant", 8)
    return deployment


CASES: Mapping[str, Callable[[], Deployment]] = {"mixed": mixed, "everything": everything}


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    """To take a wanted change over: EDGEPLACE_UPDATE_GOLDEN=1 pytest tests/test_codegen_python.py."""
    files = PythonTarget().generate(CASES[case]())
    texts = {name: content for name, content in files.items() if isinstance(content, str)}
    folder = GOLDEN / case
    if os.environ.get("EDGEPLACE_UPDATE_GOLDEN"):
        for name, content in texts.items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
    assert {path.name for path in folder.iterdir()} == set(texts)
    for name, content in texts.items():
        assert content == (folder / name).read_text(), f"{case}/{name}"


@pytest.mark.parametrize("case", CASES)
def test_generated_code_is_clean(case: str) -> None:
    runner = GOLDEN / case / "runner.py"
    compile(runner.read_text(), str(runner), "exec", dont_inherit=True)
    for arguments in (
        ["check", "--isolated"],
        ["format", "--check", "--isolated", "--line-length", "110"],
        ["check", "--config", str(ROOT / "ruff.toml"), "--ignore", "T20"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, str(runner)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    assert "edgeplace" not in re.sub(
        r'"""Runs.*?"""', "", runner.read_text(), flags=re.DOTALL
    ).lower().replace("as it does when edgeplace measures", "")


def test_only_the_loaders_in_use_are_in_the_code() -> None:
    text = PythonTarget().generate(toy_deployment({"cpu": CPU, "npu": NPU}, ["cpu", "cpu"]))["runner.py"]
    assert isinstance(text, str)
    for word in (
        "CompiledModelSession",
        "TfliteCSession",
        "ctypes",
        "openvino",
        "prepare_process",
        "delegate",
        "open_npu",
    ):
        assert word not in text.replace("the delegate map beside", "")


def test_the_same_deployment_gives_the_same_bytes() -> None:
    assert PythonTarget().generate(everything()) == PythonTarget().generate(everything())


def test_foreign_text_cannot_leave_its_place() -> None:
    for text in ("'", '"', "'\"", "\\'", "\\"):
        assert eval(python_literal(text)) == text
    evil = '"""\nimport os; os.system("x")\n\\'
    assert eval(python_literal(evil)) == evil
    assert eval(python_literal({"ä\x00": (1, 2.5, True, ("a",))})) == {"ä\x00": (1, 2.5, True, ("a",))}
    assert '"' not in plain_text(evil)
    assert "\n" not in plain_text(evil)
    assert "\\" not in plain_text(evil)
    with pytest.raises(TypeError):
        python_literal(None)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            NPU.model_copy(update={"options": {"grph_backend": "CPU"}}),
            "LiteRT's npu has no option 'grph_backend'",
        ),
        (
            NPU.model_copy(update={"options": {"graph_backend": "C-P"}}),
            "'C-P' is no member of an enumeration",
        ),
    ],
)
def test_options_that_litert_does_not_have_are_refused(spec: PlatformSpec, message: str) -> None:
    with pytest.raises(InputError) as caught:
        PythonTarget().generate(toy_deployment({"npu": spec}, ["npu"]))
    assert message in caught.value.message


def test_platform_names_that_give_the_same_function_are_refused() -> None:
    with pytest.raises(InputError, match="too alike"):
        PythonTarget().generate(toy_deployment({"my-cpu": CPU, "my_cpu": CPU}, ["my-cpu", "my_cpu"]))


def test_what_was_measured_does_not_hold_for_an_edited_map() -> None:
    deployment = mixed()
    edited = deployment.delegate_map.model_copy(
        update={
            "segments": tuple(s.model_copy(update={"sha256": ""}) for s in deployment.delegate_map.segments)
        }
    )
    files = PythonTarget().generate(
        Deployment(edited, deployment.plan, deployment.graph, deployment.files, deployment.constants)
    )
    assert "p50_ms" not in str(files["map.yaml"])
    assert "This placement was not measured" in str(files["README.md"])


# Real runs


class Placed:
    """A real model cut into equal parts over some platforms, and its generated deployment."""

    def __init__(self, path: Path, names: Sequence[str], folder: Path, platforms: Sequence[str] = ()) -> None:
        self.model = Model.load(path)
        self.graph = build_graph(self.model)
        unit_graph = contract(self.graph, "unit")
        count = len(unit_graph.units)
        groups: list[tuple[str, list[int]]] = []
        for unit in range(count):
            name = names[unit * len(names) // count]
            if not groups or groups[-1][0] != name:
                groups.append((name, []))
            groups[-1][1].append(unit)
        self.plan: Plan = plan_of_groups(unit_graph, groups)
        cutter = SegmentCutter(self.model, unit_graph)
        self.files = [cutter.file(segment) for segment in self.plan.segments]
        board = load_board("local", platforms=platforms)
        self.map = DelegateMap(
            format=MAP_FORMAT,
            model=ModelInfo(
                file=path.name,
                sha256=self.graph.model_sha256,
                nodes=len(self.graph.nodes),
                carried=tuple(sorted(unit_graph.replicated)),
            ),
            board=BoardInfo(name="local", simulated=False),
            platforms={
                name: spec_from_wire(platform_spec(name, board.platforms[name], 1))
                for name in dict.fromkeys(names)
            },
            segments=tuple(
                MapSegment(id=s.id, platform=s.platform, nodes=spanning_nodes(s.nodes, unit_graph.replicated))
                for s in self.plan.segments
            ),
        )
        self.folder = folder
        constants = {
            source.index: np.frombuffer(
                self.model.constant(self.graph.tensors[source.index].buffer),
                self.graph.tensors[source.index].dtype,
            ).reshape(self.graph.tensors[source.index].shape)
            for source in self.plan.outputs
            if source.kind == "constant"
        }
        deployment = Deployment(self.map, self.plan, self.graph, self.files, constants)
        write_files(PythonTarget().generate(deployment), folder)

    def inputs(self, seed: int = 0) -> dict[str, Any]:
        generator = np.random.default_rng(seed)
        made = {}
        for tensor, name in zip(self.graph.inputs, self.graph.input_names, strict=True):
            fact = self.graph.tensors[tensor]
            array = generator.random(fact.shape, dtype=np.float32)
            made[name] = array if fact.dtype == "float32" else (array * 200 - 100).astype(fact.dtype)
        return made

    def run(self, *arguments: str, optimize: bool = False) -> subprocess.CompletedProcess[str]:
        flags = ["-W", "error"]
        return subprocess.run(
            [sys.executable, *flags, "runner.py", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def outputs(self, inputs: Mapping[str, Any]) -> list[Any]:
        """What the generated runner gives for some inputs."""
        np.savez(self.folder / "x.npz", **inputs)
        done = self.run("--inputs", "x.npz", "--outputs", "y.npz")
        assert done.returncode == 0, done.stderr[-2000:]
        with np.load(self.folder / "y.npz") as file:
            return [file[name] for name in self.graph.output_names]


def interpreter_outputs(path: Path, kernels: str, samples: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Outputs of the whole model in one interpreter, sample after sample."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    interpreter = litert.Interpreter(
        model_path=str(path),
        num_threads=1,
        experimental_op_resolver_type=getattr(litert.OpResolverType, kernels),
    )
    interpreter.allocate_tensors()
    results = []
    for arrays in samples:
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        results.append([interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()])
    return results


def load_runner(folder: Path) -> Any:
    """The generated module, imported from its folder."""
    spec = importlib.util.spec_from_file_location(f"runner_{folder.name}", folder / "runner.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["image_classification", "face_landmark", "face_detection_full_range_sparse"]
)
def test_a_cut_model_gives_what_the_whole_gives(
    name: str, tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    placed = Placed(
        model_file(name), ["ref", "ref2", "ref"], tmp_path / "out", ["ref=cpu_ref", "ref2=cpu_ref"]
    )
    inputs = placed.inputs()
    (expected,) = interpreter_outputs(model_file(name), "BUILTIN_REF", [list(inputs.values())])
    got = placed.outputs(inputs)
    assert len(placed.plan.segments) == 3
    for left, right in zip(expected, got, strict=True):
        np.testing.assert_array_equal(left, right)


TRAPS = (
    "branchy", "multi_output", "fp16_weights", "svdf_state", "lstm_state", "resource_variables", "while_loop",
    "two_signatures", "output_consumed", "input_as_output", "same_tensor_twice", "constant_output",
    "unused_outputs", "zero_ops", "cycle_trap", "dynamic_where", "strings",
)  # fmt: skip
"""Authored models, each with one trait that breaks a naive runner."""


@pytest.mark.parametrize("name", TRAPS)
def test_models_with_a_trap_run_as_the_whole_does(
    name: str, tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    path = model_file(name)
    placed = Placed(path, ["cpu_ref", "b", "cpu_ref"], tmp_path / "out", ["cpu_ref", "b=cpu_ref"])
    module = load_runner(placed.folder)
    samples = [module.made_up_inputs() for _ in range(3)]
    expected = interpreter_outputs(path, "BUILTIN_REF", samples)
    runner = module.Runner()
    for sample, wanted in zip(samples, expected, strict=True):
        got = runner(sample)
        assert len(got) == len(wanted)
        for left, right in zip(wanted, got, strict=True):
            np.testing.assert_array_equal(left, right)


def test_a_deployment_without_its_constants_is_a_mistake() -> None:
    whole = everything()
    with pytest.raises(ValueError, match=r"no data of the constant tensors \[8\]"):
        Deployment(whole.delegate_map, whole.plan, whole.graph, whole.files)


def test_state_is_kept_between_calls_and_forgotten_by_reset(
    tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    path = model_file("okay_nabu")
    placed = Placed(path, ["cpu_ref", "cpu_builtin"], tmp_path / "out", ["cpu_ref", "cpu_builtin=cpu_ref"])
    samples = [list(placed.inputs(seed).values()) for seed in range(4)]
    expected = interpreter_outputs(path, "BUILTIN_REF", samples)
    runner = load_runner(placed.folder).Runner()
    for _ in range(2):
        for sample, wanted in zip(samples, expected, strict=True):
            for left, right in zip(wanted, runner(sample), strict=True):
                np.testing.assert_array_equal(left, right)
        runner.reset()


def test_state_in_the_c_library_is_forgotten_by_reset(
    tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    path = model_file("okay_nabu")
    platforms = [f"c=tflite_c:{c_library()},xnnpack=false"]
    runner = load_runner(Placed(path, ["c"], tmp_path / "out", platforms).folder).Runner()
    sample = [np.ones((1, 3, 40), dtype=np.int8)]
    first = [runner(sample)[0].tolist() for _ in range(3)]
    runner.reset()
    assert [runner(sample)[0].tolist() for _ in range(3)] == first


@pytest.mark.npu
def test_cpu_and_npu_together(tmp_path: Path, model_file: Callable[[str], Path]) -> None:
    require_npu()
    path = model_file("face_landmark")
    placed = Placed(path, ["cpu1", "npu"], tmp_path / "out")
    inputs = placed.inputs()
    (expected,) = interpreter_outputs(path, "AUTO", [list(inputs.values())])
    for left, right in zip(expected, placed.outputs(inputs), strict=True):
        # CPUs with AVX512-BF16 compute in bfloat16: off by up to 1 of 172.
        assert float(np.abs(left - right).max()) <= 0.02 * max(1.0, float(np.abs(left).max()))


AGENT = """
import json, sys
import numpy as np
from device_agents.runtimes import open_session
job = json.load(open(sys.argv[1]))
with np.load(job["inputs"]) as file:
    rows = {-1: [file[name] for name in job["input_names"]]}
for number, segment in enumerate(job["segments"]):
    session = open_session(segment["platform"], segment["file"])
    rows[number] = session.run([rows[row][position] for row, position in segment["takes"]])
np.savez(job["outputs"], *[rows[row][position] for row, position in job["gives"]])
"""
"""The agent's own sessions over a plan, in a process of their own: foreign libraries may end it."""


def agent_outputs(placed: Placed, inputs: Mapping[str, Any]) -> list[Any]:
    """What the agent's runtimes give for the same segments on the same platforms."""

    def place(source: Source) -> tuple[int, int]:
        return (-1, source.index) if source.kind == "input" else (source.index, source.output)

    folder = placed.folder
    np.savez(folder / "agent_x.npz", **inputs)
    segments = [
        {
            "platform": platform_spec(segment.platform, placed.map.platforms[segment.platform]),
            "file": str(next((folder / "segments").glob(f"{segment.id}_*.tflite"))),
            "takes": [place(source) for source in segment.sources],
        }
        for segment in placed.plan.segments
    ]
    job = {
        "inputs": str(folder / "agent_x.npz"),
        "input_names": list(inputs),
        "segments": segments,
        "gives": [place(source) for source in placed.plan.outputs],
        "outputs": str(folder / "agent_y.npz"),
    }
    (folder / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, "-c", AGENT, str(folder / "job.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(folder / "agent_y.npz") as file:
        return [file[f"arr_{number}"] for number in range(len(placed.plan.outputs))]


def assert_runner_is_the_agent(placed: Placed) -> None:
    inputs = placed.inputs()
    for left, right in zip(agent_outputs(placed, inputs), placed.outputs(inputs), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", ["image_classification", "iris_landmark"])
def test_the_generated_interpreter_is_the_agents(
    name: str, tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    assert_runner_is_the_agent(Placed(model_file(name), ["cpu1", "cpu_ref", "cpu1"], tmp_path / "out"))


@pytest.mark.npu
@pytest.mark.parametrize("options", ["", ",fallback=true,threads=2"])
def test_the_generated_npu_code_is_the_agents(
    options: str, tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    require_npu()
    names, platforms = ["n", "cpu1", "n"], ["cpu1", f"n=npu{options}"]
    assert_runner_is_the_agent(Placed(model_file("face_landmark"), names, tmp_path / "out", platforms))


@pytest.mark.gpu
def test_the_generated_gpu_code_is_the_agents(tmp_path: Path, model_file: Callable[[str], Path]) -> None:
    require_gpu()
    assert_runner_is_the_agent(
        Placed(model_file("face_detection_short_range"), ["gpu", "cpu1"], tmp_path / "out")
    )


@pytest.mark.parametrize("options", ["threads=2", "xnnpack=false"])
def test_the_generated_c_library_code_is_the_agents(
    options: str, tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    platforms = ["cpu1", f"c=tflite_c:{c_library()},{options}"]
    assert_runner_is_the_agent(
        Placed(model_file("face_landmark"), ["cpu1", "c", "c"], tmp_path / "out", platforms)
    )


def test_the_generated_delegate_code_is_the_agents(tmp_path: Path, model_file: Callable[[str], Path]) -> None:
    library = build_test_delegate(tmp_path)
    platforms = ["cpu1", f"d=delegate:{library},ops=ADD", f"c=tflite_c:{c_library()},delegate={library}"]
    path = tmp_path / "elementwise.tflite"
    path.write_bytes(elementwise())
    for name in ("d", "c"):
        placed = Placed(path, [name], tmp_path / name, platforms)
        assert_runner_is_the_agent(placed)


def test_command_line(tmp_path: Path, model_file: Callable[[str], Path]) -> None:
    placed = Placed(model_file("sine_float"), ["cpu1"], tmp_path / "out")
    done = placed.run("--bench", "--runs", "5")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" median")[0].strip() for line in lines] == ["total", "segment 0 on cpu1"]
    assert all(re.search(r"median +\d+\.\d{3} ms   p90 +\d+\.\d{3} ms$", line) for line in lines)
    done = placed.run()
    assert re.fullmatch(r".+: float32 \[1, 1\]\n", done.stdout)
    assert placed.run("--runs", "0").returncode == 2


def test_a_changed_or_missing_segment_is_refused(tmp_path: Path, model_file: Callable[[str], Path]) -> None:
    placed = Placed(model_file("sine_float"), ["cpu1"], tmp_path / "out")
    segment = placed.folder / "segments" / "0_cpu1.tflite"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    done = placed.run()
    assert done.returncode == 2
    assert done.stderr == (
        f"runner.py: {segment} has sha256 {hashlib.sha256(data).hexdigest()}, expected {placed.files[0].sha256}\n"
    )
    segment.unlink()
    done = placed.run("--bench")
    assert (done.returncode, done.stderr) == (
        2,
        f"runner.py: {segment} cannot be read: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: {"wrong": next(iter(x.values()))}, "given were wrong"),
        (lambda x: {k: v[0] for k, v in x.items()}, "is float32 [1, 1]; given was float32 [1]"),
        (lambda x: {k: v.astype(np.float64) for k, v in x.items()}, "is float32 [1, 1]; given was float64 [1, 1]"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(
    change: Any, message: str, tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    placed = Placed(model_file("sine_float"), ["cpu1"], tmp_path / "out")
    np.savez(placed.folder / "x.npz", **change(placed.inputs()))
    done = placed.run("--inputs", "x.npz")
    assert done.returncode == 2
    assert message in done.stderr
    assert placed.run("--inputs", "none.npz").returncode == 2


def test_inputs_without_names_are_refused(tmp_path: Path, model_file: Callable[[str], Path]) -> None:
    placed = Placed(model_file("sine_float"), ["cpu1"], tmp_path / "out")
    np.save(placed.folder / "x.npy", next(iter(placed.inputs().values())))
    done = placed.run("--inputs", "x.npy")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "runner.py: x.npy is not an .npz file, which holds inputs by name"


def test_a_segment_that_the_runtime_refuses_is_explained(
    tmp_path: Path, model_file: Callable[[str], Path]
) -> None:
    placed = Placed(model_file("sine_float"), ["cpu1"], tmp_path / "out")
    refused = AUTHORED["unknown_custom_op"]()
    (placed.folder / "segments" / "0_cpu1.tflite").write_bytes(refused)
    runner = placed.folder / "runner.py"
    code = runner.read_text().replace(placed.files[0].sha256, hashlib.sha256(refused).hexdigest())
    runner.write_text(code)
    done = placed.run()
    assert done.returncode == 1
    assert "runner.py: a segment does not run: " in done.stderr
    assert "EdgePlaceUnknown" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_map_beside_the_code_fits_it(tmp_path: Path, model_file: Callable[[str], Path]) -> None:
    placed = Placed(model_file("face_landmark"), ["cpu1", "cpu_ref"], tmp_path / "out")
    written = load_map(placed.folder / "map.yaml")
    assert plan_from_map(written, placed.graph).id == placed.plan.id
    for segment, file in zip(written.segments, placed.files, strict=True):
        assert segment.sha256 == file.sha256
        found = sorted((placed.folder / "segments").glob(f"{segment.id}_*.tflite"))
        assert hashlib.sha256(found[0].read_bytes()).hexdigest() == segment.sha256
