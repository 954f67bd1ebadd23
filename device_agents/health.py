"""How the board is: clocks, heat, throttling, load, memory. What a board does not say is None, never a guess.

Sources: the kernel's ``cpufreq``, ``thermal`` and ``thermal_throttle`` folders under /sys, /proc/loadavg, /proc/meminfo,
and on a Raspberry Pi its firmware (``get_throttled``, by sysfs or ``vcgencmd``).
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

VCGENCMD_LIMIT_S = 2.0
# Raspberry Pi's get_throttled: bits 0 to 3 are now, bits 16 to 19 since boot.
_UNDERVOLTAGE_NOW = 1 << 0
_SLOWED_NOW = (1 << 1) | (1 << 2) | (1 << 3)  # frequency capped, throttled, soft temperature limit


@dataclass(frozen=True)
class HealthSources:
    """Where the facts come from; tests and emulated boards set their own."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    vcgencmd: str = "vcgencmd"


def read_health(sources: HealthSources = HealthSources()) -> dict[str, Any]:
    """The board's state now. Every value is None when unknown.

    Returns:
        ``governor`` (the CPUs' scaling governor; several are joined by ``+``), ``frequency_khz`` (of the fastest CPU),
        ``frequencies_khz`` (per CPU), ``temperature_c`` (of the hottest zone), ``temperatures_c`` ({zone: value}),
        ``throttled`` (bool: slowed down right now, or short of voltage), ``throttle_flags`` (Raspberry Pi's word),
        ``throttle_count`` (the kernel's count of thermal throttling events; a difference between two reads says it
        throttled in between), ``load`` (over one minute), ``memory_available_bytes``, ``memory_total_bytes``.
    """
    cpus = sorted(sources.sys.glob("devices/system/cpu/cpu[0-9]*"), key=lambda path: int(path.name[3:]))
    governors = sorted({text for cpu in cpus if (text := _text(cpu / "cpufreq/scaling_governor"))})
    frequencies_khz = [_number(cpu / "cpufreq/scaling_cur_freq") for cpu in cpus]
    known_khz = [value for value in frequencies_khz if value is not None]
    temperatures_c = _temperatures_c(sources.sys)
    flags = _throttle_flags(sources)
    memory = _memory_bytes(sources.proc)
    return {
        "governor": "+".join(governors) or None,
        "frequency_khz": max(known_khz, default=None),
        "frequencies_khz": frequencies_khz if known_khz else None,
        "temperature_c": max(temperatures_c.values(), default=None),
        "temperatures_c": temperatures_c or None,
        "throttled": None if flags is None else bool(flags & (_SLOWED_NOW | _UNDERVOLTAGE_NOW)),
        "throttle_flags": flags,
        "throttle_count": _throttle_count(cpus),
        "load": _load(sources.proc),
        "memory_available_bytes": memory.get("MemAvailable"),
        "memory_total_bytes": memory.get("MemTotal"),
    }


def _temperatures_c(sys: Path) -> dict[str, float]:
    """Each thermal zone by its type; zones of the same type get their number as well."""
    temperatures: dict[str, float] = {}
    for zone in sorted(sys.glob("class/thermal/thermal_zone*")):
        millidegrees = _number(zone / "temp")
        # A zone that is switched off reads as an error, as 0 or as a sentinel far below any board's range.
        if millidegrees is None or millidegrees == 0 or not -40_000 <= millidegrees <= 150_000:
            continue
        name = _text(zone / "type") or zone.name
        temperatures[name if name not in temperatures else f"{name}:{zone.name[12:]}"] = millidegrees / 1000
    return temperatures


def _throttle_count(cpus: list[Path]) -> Optional[int]:
    """Thermal throttling events of all cores since boot (x86)."""
    counts = [_number(cpu / "thermal_throttle/core_throttle_count") for cpu in cpus]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _throttle_flags(sources: HealthSources) -> Optional[int]:
    """Raspberry Pi's throttle word, without starting a program where sysfs has it."""
    for file in sorted(sources.sys.glob("devices/platform/soc/soc:firmware/get_throttled")):
        text = _text(file)
        if text:
            return _parse_flags(text)
    program = shutil.which(sources.vcgencmd)
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [program, "get_throttled"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=VCGENCMD_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _parse_flags(answer.stdout.decode(errors="replace").partition("=")[2])


def _parse_flags(text: str) -> Optional[int]:
    try:
        return int(text.strip(), 16)
    except ValueError:
        return None


def _load(proc: Path) -> Optional[float]:
    text = _text(proc / "loadavg")
    try:
        return float(text.split()[0]) if text else None
    except ValueError:
        return None


def _memory_bytes(proc: Path) -> dict[str, int]:
    """The fields of /proc/meminfo, in bytes."""
    fields: dict[str, int] = {}
    for line in (_text(proc / "meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if parts and parts[0].isdigit():
            fields[name] = int(parts[0]) * (1024 if parts[1:] == ["kB"] else 1)
    return fields


def _text(path: Path) -> Optional[str]:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> Optional[int]:
    text = _text(path)
    try:
        return int(text) if text else None
    except ValueError:
        return None
