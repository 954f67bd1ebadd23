"""Fixtures that many test files share: where models come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from model_files import model_path

from edgeplace.testing.models import AUTHORED


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``model_file(name)``: path of an authored model (written once per session) or of a fetched one."""
    folder = tmp_path_factory.mktemp("authored")

    def path_of(name: str) -> Path:
        if name not in AUTHORED:
            return model_path(name)
        path = folder / f"{name}.tflite"
        if not path.exists():
            path.write_bytes(AUTHORED[name]())
        return path

    return path_of
