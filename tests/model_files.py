"""Where tests get real models from: files that ``tools/fetch_models.py`` has put into ``.models/``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MODELS = Path(__file__).resolve().parent.parent / ".models"


def model_path(name: str) -> Path:
    """Path of a fetched model (``face_landmark``, with or without ``.tflite``; other suffixes as they are).

    Without the file the test is skipped with the text how to get it. In CI (environment variable ``CI`` is set) it
    fails, so that a set-up that fetched nothing cannot look green.
    """
    path = MODELS / name
    if path.suffix not in {".tflite", ".so"}:
        path = path.with_name(f"{path.name}.tflite")
    if not path.is_file():
        text = f"{path.name} is not fetched; get it with: python tools/fetch_models.py"
        if os.environ.get("CI"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    return path


def available_models() -> tuple[str, ...]:
    """Names of the models that are fetched, without ``.tflite``, in order."""
    return tuple(sorted(path.name.removesuffix(".tflite") for path in MODELS.glob("*.tflite")))
