"""The command line as a user runs it: a process of its own, its exit code and what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def edgeplace(*argv: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``edgeplace`` in ``folder``, which is also its home: no records or logs of other runs are seen."""
    return subprocess.run(
        [sys.executable, "-m", "edgeplace", *map(str, argv)],
        cwd=folder,
        env=environment_of(folder, **environment),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def environment_of(folder: Path, **environment: str) -> dict[str, str]:
    """The environment of such a run."""
    own = {
        "HOME": str(folder),
        "XDG_STATE_HOME": "",
        "XDG_CACHE_HOME": "",
        "XDG_CONFIG_HOME": "",
        "EDGEPLACE_STORE": "",
    }
    return {**os.environ, **own, **environment}


def assert_explained(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """The command ended with ``code`` and one error on stderr that holds ``words`` and no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stderr.count("edgeplace: error: ") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
