"""Builds the test delegate of ``tests/delegate`` with the machine's C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent / "delegate" / "edgeplace_test_delegate.c"
NAME = "libedgeplace_test_delegate.so"


def build_test_delegate(folder: Path) -> Path:
    """Path of the test delegate in ``folder``; built there when it is not there yet.

    Without a C compiler the test is skipped with the text how to get one; in CI it fails.
    """
    library = folder / NAME
    if library.exists():
        return library
    compiler = shutil.which(os.environ.get("CC", "gcc")) or shutil.which("cc")
    if compiler is None:
        text = "the test delegate needs a C compiler; get one with: apt-get install gcc libc6-dev"
        if os.environ.get("CI"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    unfinished = folder / f"{NAME}.{os.getpid()}"
    command = [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run([*command, "-o", str(unfinished), str(SOURCE), "-lm"], check=True)
    unfinished.replace(library)
    return library
