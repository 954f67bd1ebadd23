"""What a test needs to use a real GPU or NPU path: skip with the way to get it, or fail when CI is set."""

from __future__ import annotations

import glob
import importlib.util
import os
from pathlib import Path

import pytest
from model_files import model_path

from device_agents.runtimes.environment import openvino_gap, software_vulkan_driver


def _missing(text: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


def require_gpu() -> None:
    """A Vulkan driver: the machine's GPU, or SwiftShader."""
    if not glob.glob("/dev/dri/renderD*") and software_vulkan_driver() is None:
        _missing("no Vulkan driver; on Debian: apt-get install chromium libvulkan1 (brings SwiftShader)")


def require_npu() -> None:
    """LiteRT's OpenVINO plug-in and the OpenVINO it wants."""
    gap = openvino_gap()
    if gap:
        _missing(gap)


def require_runtime(name: str) -> None:
    """``litert`` or ``tflite``; the latter ends with Python 3.11 and is never an error."""
    package = {"litert": "ai_edge_litert", "tflite": "tflite_runtime"}[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed for this Python")


def c_library() -> Path:
    """A TFLite C library."""
    return model_path("lib/libtensorflowlite_c.so")
