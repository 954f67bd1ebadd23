"""What the agent says about itself and its board in ``hello``.

It loads no foreign library, numpy included: this runs in the parent process.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any, Optional

from device_agents.bundle import agent_sha256
from device_agents.protocol import PROTOCOL_VERSION

RUNTIMES = ("ai-edge-litert", "tflite-runtime")
PACKAGES = (*RUNTIMES, "openvino", "numpy")
"""Those of ``device_agents.runtimes.environment.RUNTIME_PACKAGES``; importing that would load numpy."""


def describe(blobs_dir: Path, proc: Path = Path("/proc")) -> dict[str, Any]:
    """The answer to ``hello``: fields of :mod:`device_agents.protocol`; what is unknown is None."""
    runtimes, reason = _runtimes()
    return {
        "version": PROTOCOL_VERSION,
        "agent_sha256": agent_sha256(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "boot_id": _first_line(proc / "sys/kernel/random/boot_id"),
        "cpu_count": _cpu_count(),
        "pid": os.getpid(),
        "runtimes": runtimes,
        "runtimes_reason": reason,
        "blobs_dir": str(blobs_dir),
        "fingerprint": {
            "machine": platform.machine(),
            "kernel": platform.release(),
            "cpu_model": _cpu_model(proc),
            "board_model": _board_model(proc),
            "cpu_count": _cpu_count(),
            "os_release": _os_release(),
            "libc": "-".join(platform.libc_ver()) if platform.libc_ver()[0] else None,
            "python": platform.python_version(),
            "runtimes": runtimes,
        },
    }


def _runtimes() -> tuple[dict[str, str], Optional[str]]:
    """Versions of what can run models here, from the packages' records; and when that is nothing, why."""
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if "numpy" not in versions:
        return {}, f"numpy is not installed for {sys.executable}"
    if not any(name in versions for name in RUNTIMES):
        return {}, f"none of {', '.join(RUNTIMES)} is installed for {sys.executable}"
    return versions, None


def _cpu_count() -> Optional[int]:
    """CPUs this process may use, which is fewer than there are under taskset or in a container."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count()


def _cpu_model(proc: Path) -> Optional[str]:
    """The processor's name: x86 has one, ARM has numbers that name one."""
    fields: dict[str, str] = {}
    try:
        for line in (proc / "cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        return None
    if fields.get("model name"):
        return fields["model name"]
    parts = [fields[name] for name in ("CPU implementer", "CPU part", "CPU revision") if fields.get(name)]
    return "ARM " + "/".join(parts) if parts else None


def _board_model(proc: Path) -> Optional[str]:
    """The device tree's name of the board."""
    line = _first_line(proc / "device-tree/model")
    return line.rstrip("\0") if line else None


def _os_release() -> Optional[str]:
    """Name and version of the distribution."""
    try:
        for line in Path("/etc/os-release").read_text(errors="replace").splitlines():
            name, _, value = line.partition("=")
            if name == "PRETTY_NAME":
                return value.strip("\"'")
    except OSError:
        pass
    return None


def _first_line(path: Path) -> Optional[str]:
    try:
        return path.read_text(errors="replace").splitlines()[0].strip() or None
    except (OSError, IndexError):
        return None
