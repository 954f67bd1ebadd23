"""What starting the command line loads: help and mistyped options must not wait for numerics or a database."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PRINT_PACKAGES = "import json, sys; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"


def packages_after(statement: str) -> set[str]:
    """Top-level packages that are loaded once the statement has run in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}; {PRINT_PACKAGES}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("statement", "not_yet"),
    [
        ("import edgeplace.cli", {"numpy", "pydantic", "sqlalchemy", "yaml"}),
        ("import edgeplace.controller", {"sklearn", "paramiko", "jinja2"}),
    ],
    ids=["help", "a verb"],
)
def test_packages_are_loaded_when_they_are_needed_and_not_before(statement: str, not_yet: set[str]) -> None:
    runtimes = {"ai_edge_litert", "tflite_runtime", "openvino"}  # these belong to the agent's worker alone
    assert not packages_after(statement) & (not_yet | runtimes)
