"""The layers of the host and the single import sites, as an executable rule (docs/concepts.md, "Layers")."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("registry", "deadline", "atomic", "user_folders", "printable"),
    ("schema",),
    ("boards",),
    ("tflite",),
    ("graph",),
    ("placement",),
    ("transport",),
    ("agent_client",),
    ("measure",),
    ("store",),
    ("optimizers",),
    ("delegate_map",),
    ("codegen",),
    ("report",),
    ("catalog",),
    ("controller",),
    ("cli",),
)
ROW = {name: row for row, names in enumerate(LAYERS) for name in names}

SINGLE_IMPORTERS: dict[str, tuple[str, ...]] = {
    "yaml": ("schema",),
    "pydantic": ("schema",),
    "flatbuffers": ("tflite",),
    "ai_edge_litert": ("tflite",),
    "paramiko": ("transport",),
    "device_agents": ("agent_client",),
    "sqlalchemy": ("store",),
    "sklearn": ("optimizers",),
    "jinja2": ("codegen",),
    "typer": ("cli",),
    "rich": ("report", "cli"),
    "PIL": ("measure",),
}
"""Third-party package -> the modules of the host that may import it."""

HOST_ALLOWED = {"edgeplace", "numpy"} | set(SINGLE_IMPORTERS) | set(sys.stdlib_module_names)
AGENT_PARTS_FOR_THE_HOST = {"protocol", "arrays", "bundle"}
"""What the host may import of the agent: the words on the wire, and what packs and installs the agent."""
BY_NAME = {"edgeplace/measure/metric.py", "device_agents/runtimes/interpreter.py"}
"""Files that import what only a user or a platform can name: a task metric, the TFLite runtime."""

AGENT_RUNTIMES = {"ai_edge_litert", "tflite_runtime", "openvino"}
AGENT_ALLOWED = {"numpy", "device_agents"} | set(sys.stdlib_module_names)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Every import of a file as (line, dotted name), also those inside functions.

    What is imported by a name that only the running program knows has the name ``?``.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if node.module in ("edgeplace", "device_agents"):
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""
        elif isinstance(node, ast.Call) and _name_of(node.func) in ("import_module", "__import__"):
            name = node.args[0] if node.args else None
            literal = isinstance(name, ast.Constant) and isinstance(name.value, str)
            yield node.lineno, str(name.value) if literal and isinstance(name, ast.Constant) else "?"


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def host_files() -> list[tuple[str, Path]]:
    """(layer name, file) of every host module that is part of a row."""
    files = []
    for path in sorted((ROOT / "edgeplace").rglob("*.py")):
        top = path.relative_to(ROOT / "edgeplace").parts[0].removesuffix(".py")
        if top not in ("__init__", "__main__", "testing", "_boards"):
            files.append((top, path))
    return files


def test_every_host_module_stands_in_a_row() -> None:
    assert {name for name, _ in host_files()} <= set(ROW)


@pytest.mark.parametrize(("here", "path"), host_files(), ids=lambda value: getattr(value, "name", value))
def test_a_module_imports_only_rows_above_it(here: str, path: Path) -> None:
    wrong = []
    for line, name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "edgeplace" and len(parts) > 1 and parts[1] != "__version__":
            there = parts[1]
            if there != here and (there not in ROW or ROW[there] >= ROW[here]):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {here} imports {there}")
        elif parts[0] in SINGLE_IMPORTERS and here not in SINGLE_IMPORTERS[parts[0]]:
            wrong.append(f"{path.relative_to(ROOT)}:{line}: {here} imports {parts[0]}")
        elif parts[0] == "device_agents" and parts[1:2] and parts[1] not in AGENT_PARTS_FOR_THE_HOST:
            wrong.append(f"{path.relative_to(ROOT)}:{line}: the host imports {name}")
        elif parts[0] not in HOST_ALLOWED and not _may_import_by_name(path, name):
            wrong.append(f"{path.relative_to(ROOT)}:{line}: {name} is no package of the host")
    assert not wrong, "\n".join(wrong)


def _may_import_by_name(path: Path, name: str) -> bool:
    return name == "?" and path.relative_to(ROOT).as_posix() in BY_NAME


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import a.b, c", ["a.b", "c"]),
        ("def f():\n    from edgeplace import cli, errors", ["edgeplace.cli", "edgeplace.errors"]),
        ("if TYPE_CHECKING:\n    from edgeplace.cli.output import Output", ["edgeplace.cli.output"]),
        ("importlib.import_module('edgeplace.cli')", ["edgeplace.cli"]),
        ("import_module(name)", ["?"]),
        ("__import__('edgeplace.cli')", ["edgeplace.cli"]),
        ("from device_agents import protocol", ["device_agents.protocol"]),
    ],
)
def test_every_way_to_import_is_seen(text: str, names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    assert [name for _, name in imports_of(path)] == names


def test_the_agent_needs_only_the_standard_library_numpy_and_a_runtime() -> None:
    wrong = []
    for path in sorted((ROOT / "device_agents").rglob("*.py")):
        in_runtimes = path.is_relative_to(ROOT / "device_agents" / "runtimes")
        allowed = AGENT_ALLOWED | (AGENT_RUNTIMES if in_runtimes else set())
        for line, name in imports_of(path):
            if name.split(".")[0] not in allowed and not _may_import_by_name(path, name):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert not wrong, "\n".join(wrong)


def test_the_protocol_needs_only_the_standard_library() -> None:
    names = {name.split(".")[0] for _, name in imports_of(ROOT / "device_agents" / "protocol.py")}
    assert names <= set(sys.stdlib_module_names)
