"""What the agent reads by itself: facts of a model file, libraries an ELF file wants, and what libraries say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelerators import require_npu
from delegate_build import build_test_delegate

from device_agents.protocol import RequestError
from device_agents.runtimes import environment
from device_agents.runtimes.failure_text import MAX_REASON_CHARS, captured_stderr, classify, reason
from device_agents.runtimes.model_facts import ModelFileError, read_model_facts
from device_agents.runtimes.option_values import as_flag, as_threads
from edgeplace.testing.models import AUTHORED
from edgeplace.tflite import schema

ModelFile = Callable[[str], Path]
STATEFUL = {"svdf_state", "lstm_state", "resource_variables"}


@pytest.mark.parametrize("name", sorted(AUTHORED))
def test_facts_agree_with_the_schema(model_file: ModelFile, name: str) -> None:
    path = model_file(name)
    facts = read_model_facts(str(path))
    model: Any = schema.fb.ModelT.InitFromPackedBuf(bytearray(path.read_bytes()))
    graph = model.subgraphs[0]
    assert facts.inputs == tuple(graph.inputs if graph.inputs is not None else ())
    assert facts.outputs == tuple(graph.outputs if graph.outputs is not None else ())
    assert facts.names == tuple((tensor.name or b"").decode() for tensor in graph.tensors)
    assert facts.node_count == len(graph.operators or ())
    with_data = {
        number
        for number, tensor in enumerate(graph.tensors)
        if model.buffers[tensor.buffer].data is not None and len(model.buffers[tensor.buffer].data)
    }
    assert facts.constants == with_data
    assert facts.stateful == (name in STATEFUL)


def test_a_truncated_file_is_refused_or_read_but_nothing_else(model_file: ModelFile, tmp_path: Path) -> None:
    data = model_file("conv_chain").read_bytes()
    path = tmp_path / "cut.tflite"
    for size in range(0, len(data), max(1, len(data) // 97)):
        path.write_bytes(data[:size])
        try:
            read_model_facts(str(path))
        except ModelFileError:
            continue


def test_an_empty_or_other_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    for content, says in ((b"", "empty"), (b"PK\x03\x04 a zip archive", "TFL3")):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=says):
            read_model_facts(str(path))


def test_needed_libraries_are_read_from_the_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    library = build_test_delegate(tmp_path_factory.mktemp("delegate"))
    needed = environment.needed_libraries(str(library))
    assert any(name.startswith("libc.so") for name in needed)
    assert any(name.startswith("libm.so") for name in needed)


@pytest.mark.parametrize("content", [b"", b"MZ", b"\x7fELF\x01\x01" + bytes(100)])
def test_a_file_that_is_no_64_bit_elf_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lib.so").write_bytes(content)
    with pytest.raises(ValueError, match="ELF"):
        environment.needed_libraries(str(tmp_path / "lib.so"))


@pytest.mark.npu
def test_the_openvino_that_the_plug_in_wants_is_named(tmp_path: Path) -> None:
    require_npu()
    (main,) = [name for name in environment.openvino_sonames() if name.startswith("libopenvino.so.")]
    folder = environment.openvino_folder()
    assert folder is not None
    assert (Path(folder) / main).exists()
    (tmp_path / "libopenvino.so.1").touch()
    gap = environment.openvino_gap(str(tmp_path))
    assert main in gap
    assert "libopenvino.so.1" in gap


def test_variables_and_preloads_of_a_platform_are_applied_once(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = build_test_delegate(tmp_path_factory.mktemp("preload"))
    monkeypatch.setenv("EDGEPLACE_TEST_VARIABLE", "before")
    platform = {
        "name": "x",
        "loader": "interpreter",
        "env": {"EDGEPLACE_TEST_VARIABLE": "after"},
        "preload": [str(library)],
    }
    environment.apply_environment(platform)
    assert os.environ["EDGEPLACE_TEST_VARIABLE"] == "after"
    monkeypatch.setenv("EDGEPLACE_TEST_VARIABLE", "changed since")
    environment.apply_environment(platform)
    assert os.environ["EDGEPLACE_TEST_VARIABLE"] == "changed since"


def test_importing_the_agent_imports_no_runtime() -> None:
    code = "import sys, device_agents.plan_runner; print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not any(
        f"'{name}'" in modules for name in ("ai_edge_litert", "tflite_runtime", "openvino", "edgeplace")
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Encountered unresolved custom op: Foo. Node number 1 (Foo) failed to prepare.", "unsupported"),
        ("Didn't find op for builtin opcode 'CONV_2D' version '9'.", "unsupported"),
        ("Some ops are not accelerated. Add kLiteRtHwAcceleratorCpu", "unsupported"),
        ("delegate X: std::bad_alloc", "out_of_memory"),
        ("Failed to allocate 300 MB on the device", "out_of_memory"),
        ("Node number 5 (Foo) failed to prepare.", "prepare_failed"),
        ("something else", "compile_failed"),
    ],
)
def test_words_of_libraries_are_classed(text: str, kind: str) -> None:
    assert classify(text, "compile_failed") == kind


def test_a_reason_is_one_short_line_without_source_positions() -> None:
    chatter = (
        "INFO: [compiled_model.cc:829] loaded\n"
        "ERROR: [openvino_compiler_plugin.cc:714] Exception in compilation\n"
        "WARNING: [npu_registry.cc:34] NPU accelerator could not be loaded and registered\n"
    )
    error = RuntimeError("ERROR: [./litert/cc/litert_compiled_model.h:1961]\n└ Some ops are not accelerated.")
    assert reason(error, chatter) == "Some ops are not accelerated. | Exception in compilation"
    glued = "A failed.Node number 1 (A) failed to prepare."
    assert reason(ValueError(glued + glued)) == "A failed. Node number 1 (A) failed to prepare."
    assert len(reason(ValueError("x" * 5000))) == MAX_REASON_CHARS
    assert reason(ValueError()) == "ValueError"


def test_what_native_code_prints_is_collected_and_still_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_stderr() as captured:
        os.write(2, b"from native code\n")
    assert captured.text == "from native code\n"
    assert capfd.readouterr().err == "from native code\n"


def test_what_goes_to_a_pipe_is_collected_and_still_arrives() -> None:
    code = (
        "import os\n"
        "from device_agents.runtimes.failure_text import captured_stderr\n"
        "with captured_stderr() as captured:\n"
        "    os.write(2, b'hello')\n"
        "print(captured.text)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("hello\n", "hello")


def test_option_values_may_be_texts() -> None:
    assert [as_flag("f", value) for value in (True, "true", "0", 1, "No")] == [True, True, False, True, False]
    assert as_threads("threads", "4") == 4
    for bad in (0, -1, "x", None, 10**6):
        with pytest.raises(RequestError):
            as_threads("threads", bad)
    with pytest.raises(RequestError):
        as_flag("f", "maybe")
