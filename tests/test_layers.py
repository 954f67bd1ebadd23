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
    ("registry", "deadline", "atomic", "user_folders"),
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
}
"""Third-party package -> the modules of the host that may import it."""

AGENT_RUNTIMES = {"ai_edge_litert", "tflite_runtime", "openvino"}
AGENT_ALLOWED = {"numpy", "device_agents"} | set(sys.stdlib_module_names)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Every import of a file as (line, dotted name), also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            if node.module == "edgeplace":
                yield from ((node.lineno, f"edgeplace.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""


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
    assert not wrong, "\n".join(wrong)


def test_the_agent_needs_only_the_standard_library_numpy_and_a_runtime() -> None:
    wrong = []
    for path in sorted((ROOT / "device_agents").rglob("*.py")):
        allowed = AGENT_ALLOWED | (AGENT_RUNTIMES if "runtimes" in path.parts else set())
        for line, name in imports_of(path):
            if name.split(".")[0] not in allowed:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert not wrong, "\n".join(wrong)


def test_the_protocol_needs_only_the_standard_library() -> None:
    names = {name.split(".")[0] for _, name in imports_of(ROOT / "device_agents" / "protocol.py")}
    assert names <= set(sys.stdlib_module_names)
