"""The agent as one file: the same bytes everywhere, and enough to start on a bare Python."""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from agent_process import running_agent, sha256

import device_agents
from device_agents.bundle import agent_sha256, build_agent_bytes
from device_agents.identity import PACKAGES
from device_agents.runtimes.environment import RUNTIME_PACKAGES

PACKAGE = Path(device_agents.__file__).parent
ROOT = PACKAGE.parent


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "agent.pyz"
    path.write_bytes(build_agent_bytes(PACKAGE))
    return path


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "device_agents"
    shutil.copytree(PACKAGE, copy)
    for path in copy.rglob("*.py"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    (copy / "__pycache__").mkdir(exist_ok=True)
    (copy / "__pycache__" / "stray.py").write_text("")
    assert build_agent_bytes(copy) == build_agent_bytes(PACKAGE)


def test_other_sources_give_another_hash(tmp_path: Path) -> None:
    copy = tmp_path / "device_agents"
    shutil.copytree(PACKAGE, copy)
    (copy / "arrays.py").write_text("# changed\n")
    assert build_agent_bytes(copy) != build_agent_bytes(PACKAGE)


def test_it_holds_every_module_and_nothing_else(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        names = set(archive.namelist())
        assert archive.testzip() is None
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
    modules = {f"device_agents/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*.py")}
    assert names == modules | {"__main__.py"}
    assert bundle.read_bytes().startswith(b"#!/usr/bin/env python3\n")


def test_a_folder_that_is_not_the_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not the device_agents package"):
        build_agent_bytes(tmp_path)


def test_an_old_python_is_told_what_it_lacks() -> None:
    with zipfile.ZipFile(BytesIO(build_agent_bytes(PACKAGE))) as archive:
        start = archive.read("__main__.py").decode()
    code = start.replace("sys.version_info < (3, 9)", "sys.version_info < (9, 9)")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Python 3.9 or newer is needed" in result.stderr


NEWER_KEYWORDS = {"zip": {"strict"}, "dataclass": {"slots", "kw_only", "match_args", "weakref_slot"}}
"""What Python 3.10 and 3.11 brought to calls that look alike on 3.9."""


def newer_than_python_3_9(source: str) -> list[str]:
    """What of a module Python 3.9 does not have; a module that does not even parse raises ``SyntaxError``."""
    found = []
    for node in ast.walk(ast.parse(source, feature_version=(3, 9))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            newer = NEWER_KEYWORDS.get(name, set()) & {str(keyword.arg) for keyword in node.keywords}
            found += [f"line {node.lineno}: {name}({keyword}=...)" for keyword in sorted(newer)]
            if name in ("isinstance", "issubclass") and isinstance(node.args[-1], ast.BinOp):
                found.append(f"line {node.lineno}: {name} with a union")
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_the_agent_is_written_for_python_3_9(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert newer_than_python_3_9(source) == []
    assert "|" not in source or "from __future__ import annotations" in source


@pytest.mark.parametrize(
    "line", ["zip(a, b, strict=True)", "@dataclass(slots=True)\nclass A: ...", "isinstance(a, int | str)"]
)
def test_what_is_newer_is_seen(line: str) -> None:
    assert newer_than_python_3_9(line)
    with pytest.raises(SyntaxError):
        newer_than_python_3_9("match a:\n    case 1: ...")


def test_it_starts_on_a_bare_python_and_says_what_is_missing(bundle: Path, tmp_path: Path) -> None:
    with running_agent(tmp_path / "root", command=[sys.executable, "-I", "-S", str(bundle)]) as agent:
        hello = agent.ask("hello")
        assert hello["agent_sha256"] == hashlib.sha256(bundle.read_bytes()).hexdigest()
        assert hello["runtimes"] == {}
        assert "numpy is not installed" in hello["runtimes_reason"]
        model = agent.put(b"model")
        assert agent.ask("have", hashes=[model])["missing"] == []
        error = agent.ask("shapes", model=model)["error"]
        assert error["kind"] == "runtime_missing"
        assert "numpy" in error["message"]
        assert agent.close() == 0


def test_package_and_bundle_go_by_one_hash(bundle: Path, tmp_path: Path) -> None:
    assert agent_sha256() == sha256(bundle.read_bytes())
    with running_agent(tmp_path / "root", command=[sys.executable, str(bundle)]) as agent:
        hello = agent.ask("hello")
    assert hello["agent_sha256"] == agent_sha256()
    assert hello["runtimes"]["numpy"]


def test_the_parent_loads_no_foreign_library() -> None:
    code = (
        "import sys, pathlib, device_agents.__main__, device_agents.identity as identity;"
        "identity.describe(pathlib.Path('/'));"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(result.stdout.split("'")[1::2])
    assert not loaded & {
        "numpy",
        "ai_edge_litert",
        "tflite_runtime",
        "openvino",
        "edgeplace",
        "yaml",
        "paramiko",
    }


def test_parent_and_runtimes_look_for_the_same_packages() -> None:
    assert set(PACKAGES) == set(RUNTIME_PACKAGES)


def test_the_command_writes_the_file_and_prints_its_hash(tmp_path: Path) -> None:
    output = tmp_path / "agent.pyz"
    result = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "build_agent.py"), str(output)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == hashlib.sha256(output.read_bytes()).hexdigest()
    assert output.read_bytes() == build_agent_bytes(PACKAGE)
    assert os.access(output, os.X_OK)
    assert list(tmp_path.iterdir()) == [output]
