"""The board's state from files that look like a board's; and None where a board says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_agents.health import HealthSources, read_health


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def sources(tmp_path: Path) -> HealthSources:
    return HealthSources(sys=tmp_path / "sys", proc=tmp_path / "proc", vcgencmd=str(tmp_path / "vcgencmd"))


def vcgencmd(sources: HealthSources, script: str) -> None:
    program = Path(sources.vcgencmd)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_nothing_known_is_none_everywhere(sources: HealthSources) -> None:
    assert set(read_health(sources).values()) == {None}


def test_a_board_that_says_everything(sources: HealthSources) -> None:
    write(
        sources.sys,
        {
            "devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil\n",
            "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1500000\n",
            "devices/system/cpu/cpu10/cpufreq/scaling_governor": "performance\n",
            "devices/system/cpu/cpu10/cpufreq/scaling_cur_freq": "2400000\n",
            "devices/system/cpu/cpu2/online": "0\n",
            "devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3\n",
            "devices/system/cpu/cpu10/thermal_throttle/core_throttle_count": "4\n",
            "class/thermal/thermal_zone0/type": "cpu-thermal\n",
            "class/thermal/thermal_zone0/temp": "61322\n",
            "class/thermal/thermal_zone1/type": "cpu-thermal\n",
            "class/thermal/thermal_zone1/temp": "48000\n",
            "class/thermal/thermal_zone2/type": "modem-off\n",
            "class/thermal/thermal_zone2/temp": "-274000\n",
            "class/thermal/thermal_zone3/temp": "nonsense\n",
        },
    )
    write(
        sources.proc,
        {
            "loadavg": "0.52 0.58 0.59 1/467 12345\n",
            "meminfo": "MemTotal:        8000 kB\nMemFree:  1 kB\nMemAvailable:    6000 kB\nHugePages_Total:       0\n",
        },
    )
    vcgencmd(sources, "echo throttled=0x50000")
    assert read_health(sources) == {
        "governor": "performance+schedutil",
        "frequency_khz": 2_400_000,
        "frequencies_khz": [1_500_000, None, 2_400_000],
        "temperature_c": 61.322,
        "temperatures_c": {"cpu-thermal": 61.322, "cpu-thermal:1": 48.0},
        "throttled": False,
        "throttle_flags": 0x50000,
        "throttle_count": 7,
        "load": 0.52,
        "memory_available_bytes": 6000 * 1024,
        "memory_total_bytes": 8000 * 1024,
    }


@pytest.mark.parametrize(
    ("answer", "flags", "throttled"),
    [
        ("throttled=0x0", 0, False),
        ("throttled=0xe0008", 0xE0008, True),
        ("throttled=0x1", 1, True),
        ("throttled=0x4", 4, True),
        ("VCHI initialization failed", None, None),
        ("", None, None),
    ],
)
def test_the_raspberry_pis_word(
    sources: HealthSources, answer: str, flags: int | None, throttled: bool | None
) -> None:
    vcgencmd(sources, f"echo '{answer}'")
    health = read_health(sources)
    assert (health["throttle_flags"], health["throttled"]) == (flags, throttled)


@pytest.mark.parametrize("script", ["exit 1", "exec sleep 1000"])
def test_a_firmware_tool_that_fails_or_hangs_is_unknown(
    sources: HealthSources, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("device_agents.health.VCGENCMD_LIMIT_S", 0.1)
    vcgencmd(sources, script)
    assert read_health(sources)["throttled"] is None


def test_sysfs_saves_starting_the_firmware_tool(sources: HealthSources) -> None:
    write(sources.sys, {"devices/platform/soc/soc:firmware/get_throttled": "4\n"})
    vcgencmd(sources, "echo throttled=0x0")
    assert read_health(sources)["throttle_flags"] == 4


def test_this_machine_answers() -> None:
    health = read_health()
    assert health["load"] is not None
    assert health["memory_available_bytes"] > 0
