"""Tables: right values in the right places, foreign names shown as they are."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from edgeplace.delegate_map import BEYOND_LIMIT
from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import contract
from edgeplace.graph.inspect import inspect_model
from edgeplace.printable import printable
from edgeplace.report import tables
from edgeplace.report.words import (
    agreement_text,
    bytes_text,
    count_text,
    counted,
    interval_text,
    ms_text,
    ratio_text,
    shape_text,
    short_text,
)
from edgeplace.tflite.reader import Model


def shown(parts: Sequence[RenderableType], width: int = 160) -> list[str]:
    """The lines a terminal shows, without trailing blanks."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None)
    for part in parts:
        console.print(part)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def words(line: str) -> list[str]:
    """The cells of a line: columns are at least two blanks apart, one blank is part of a cell."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


MAP: dict[str, Any] = {
    "format": "edgeplace/delegate-map@1",
    "model": {"file": "face[red].tflite", "sha256": "0" * 64, "nodes": 97},
    "board": {"name": "rpi5", "simulated": False},
    "platforms": {},
    "segments": [
        {"id": 0, "platform": "npu", "nodes": ["0-41"], "p50_ms": 0.41, "ran_on": "npu (intel_openvino)"},
        {"id": 1, "platform": "cpu", "nodes": ["42-95", 96]},
    ],
    "result": {
        "p50_ms": 0.8312,
        "ci95_ms": [0.82, 0.85],
        "speedup_over_best_single": 1.12,
        "decision": "faster by more than 1 %",
        "numeric": {"snr_db": 61.2, "cosine": 0.99999},
        "reference": "reference kernels",
        "inputs": "8 seeded samples",
        "noisy": True,
    },
    "baselines": {"npu": 0.93, "cpu": 1.15, "gpu": "unsupported: unit 3"},
    "search": {"method": "surrogate", "threshold": 256, "placements": 1024, "measured": 74, "failed": 3},
    "platforms_left_out": {"tpu": "no such device"},
}


def row(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "single platform",
        "chosen": False,
        "p50_ms": 0.93,
        "ci95_ms": [0.92, 0.94],
        "failure": None,
        "speedup": 1.0,
        "agreement": {"snr_db": 61.2, "cosine": 0.99999},
        "wrong": "",
        "segments": 1,
        "transfers": 0,
        **changes,
    }


def test_optimize_tables() -> None:
    rows = [
        row("npu"),
        row("cpu", p50_ms=1.15, ci95_ms=None, speedup=0.81, agreement={"max_abs": 0.0}),
        row(
            "gpu",
            p50_ms=None,
            ci95_ms=None,
            speedup=None,
            failure="unsupported: unit 3",
            segments=None,
            transfers=None,
        ),
        row("runtime-default", kind="runtime default", wrong="SNR 12 dB is under 30 dB"),
        row("fastest found", kind="mixed", chosen=True, p50_ms=0.8312, speedup=1.12, segments=2, transfers=3),
    ]
    outcome = {"map_file": "face.rpi5.yaml", "map": MAP, "rows": rows}
    lines = shown(tables.optimize_tables(outcome))
    assert lines[0] == "face[red].tflite on rpi5: 0.831 ms, 1.12x as fast as the best single platform, noisy"
    by_name = {cells[0]: cells[1:] for line in lines[2:6] if (cells := words(line))}
    assert by_name["npu"] == ["0.930", "0.920 .. 0.940", "1.00x", "SNR 61.2 dB, cosine 0.99999", "1", "0"]
    assert by_name["cpu"] == ["1.15", "-", "0.81x", "equal", "1", "0"]
    assert by_name["gpu"] == ["-", "-", "-", "-", "-", "-"]
    assert by_name["runtime-default"][3] == "wrong"
    assert lines[6].startswith("> fastest found") or words(lines[6])[:2] == [
        ">",
        "fastest found",
    ]
    assert words(lines[6])[-2:] == ["2", "3"]
    assert "gpu: unsupported: unit 3" in lines
    assert "runtime-default: SNR 12 dB is under 30 dB" in lines
    assert "tpu: not there: no such device" in lines
    assert "decision: faster by more than 1 %" in lines
    assert lines[-1] == "map: face.rpi5.yaml"
    json.dumps(outcome)


def test_outputs_beyond_the_limit_are_told() -> None:
    result = {**MAP["result"], "limit": {"snr_db": 30.0, "cosine": 0.99}}
    rows = [row("cpu", agreement={"snr_db": -0.9, "cosine": 0.0, "max_abs": 2.0}), row("npu", chosen=True)]
    outcome = {"map_file": "m.yaml", "map": {**MAP, "result": result}, "rows": rows}
    told = [line for line in shown(tables.optimize_tables(outcome)) if BEYOND_LIMIT in line]
    assert told == [f"cpu: outputs {BEYOND_LIMIT}"]


def test_a_wrong_default_has_no_interval_without_a_time() -> None:
    rows = [
        row("npu", chosen=True),
        row("npu+cpu default", p50_ms=None, ci95_ms=[0.4, 0.7], speedup=None, wrong="x"),
    ]
    lines = shown(tables.optimize_tables({"map_file": "m.yaml", "map": MAP, "rows": rows}))
    found = next(words(line) for line in lines if line.lstrip().startswith("npu+cpu default "))
    assert found[1:] == ["-", "-", "-", "-", "1", "0"]


def test_counts_of_one() -> None:
    assert [counted(number, "unit") for number in (0, 1, 2)] == ["0 units", "1 unit", "2 units"]


def test_map_tables() -> None:
    lines = shown(tables.map_tables({"map_file": "m.yaml", "map": MAP}))
    segment = next(words(line) for line in lines if line.strip().startswith("0 "))
    assert segment == ["0", "npu", "0-41", "0.410", "npu (intel_openvino)"]
    assert any("42-95, 96" in line for line in lines)
    assert "left out: tpu: no such device" in lines
    assert any(words(line)[0] == "gpu" and "unsupported: unit 3" in line for line in lines if words(line))
    assert "search: surrogate, 74 of 1024 placements measured, 3 failed; threshold 256" in lines


def test_a_map_by_hand_and_a_simulated_one_say_so() -> None:
    plain = {key: value for key, value in MAP.items() if key not in ("result", "search", "baselines")}
    plain["board"] = {"name": "toy", "simulated": True}
    lines = shown(tables.map_tables({"map_file": "m.yaml", "map": plain}))
    assert lines[0] == "face[red].tflite on toy (SIMULATED): not measured"


def test_verify_tables() -> None:
    outcome = {
        "map_file": "m.yaml",
        "holds": False,
        "checks": [
            {"name": "outputs", "holds": True, "said": "SNR 61", "found": "SNR 60"},
            {"name": "speed", "holds": False, "said": "0.83 ms", "found": "2.1 ms"},
        ],
        "rows": [
            {"name": "placement", "p50_ms": 2.1, "ci95_ms": [2.0, 2.2], "said_ms": 0.83},
            {"name": "gpu", "p50_ms": 2.5, "ci95_ms": [2.4, 2.6], "said_ms": "unsupported"},
        ],
        "board_changes": ["kernel: 6.1 then, 6.6 now"],
    }
    lines = shown(tables.verify_tables(outcome))
    assert words(lines[1])[0].startswith("ok")
    assert lines[2].startswith("NO")
    assert any(words(line)[-1] == "unsupported" for line in lines if words(line))
    assert "the board has changed: kernel: 6.1 then, 6.6 now" in lines
    assert lines[-1] == "m.yaml: DOES NOT HOLD"
    assert shown(tables.verify_tables({**outcome, "holds": True}))[-1] == "m.yaml: holds"


def test_platform_tables() -> None:
    facts = {
        "board": "local",
        "address": "local",
        "fingerprint": {"machine": "x86_64", "cpu_count": 2},
        "platforms": [
            {"name": "cpu", "kind": "cpu", "available": True, "reason": "", "verified": True,
             "details": {"ran_on": "xnnpack 5/7"}},
            {"name": "gpu", "kind": "gpu", "available": False, "reason": "no Vulkan driver", "verified": False,
             "details": {}},
        ],
    }  # fmt: skip
    lines = shown(tables.platform_tables(facts))
    assert lines[0] == "local (local): machine x86_64, cpu_count 2"
    assert "xnnpack 5/7" in lines[2]
    assert lines[3].split()[:3] == ["gpu", "gpu", "no"]
    assert lines[3].endswith("no Vulkan driver; never run on the real hardware")


def test_boards_tables() -> None:
    boards = [
        {
            "name": "local",
            "title": "This machine",
            "address": "local",
            "platforms": ["cpu", "gpu"],
            "problem": "",
        },
        {"name": "linux", "title": "Any", "address": "", "platforms": ["cpu"], "problem": ""},
        {"name": "bad", "title": "", "address": "", "platforms": [], "problem": "bad.yaml:3: [x] is wrong"},
    ]
    lines = shown(tables.boards_tables(boards))
    assert "cpu, gpu" in lines[1]
    assert "to be extended" in lines[2]
    assert lines[3] == "bad: bad.yaml:3: [x] is wrong"


def test_inspect_tables_of_a_real_model(model_file: Callable[[str], Path]) -> None:
    model = Model.load(model_file("okay_nabu"))
    graph = build_graph(model)
    facts = inspect_model(model, graph, contract(graph, "unit"))
    lines = shown(tables.inspect_tables(facts))
    assert lines[0].startswith(f"{model.name}: ")
    assert f"{len(graph.nodes)} operators" in lines[0]
    assert lines[1] == f"sha256 {model.sha256}"
    assert any(line.startswith("input ") for line in lines)
    assert any(line.startswith("operators ") and "stay together: " in line for line in lines)
    assert any("units (granularity unit)" in line for line in lines)
    assert sum("VAR_HANDLE" in line for line in lines) >= 6


def test_inspect_tables_of_a_model_without_bonds(model_file: Callable[[str], Path]) -> None:
    model = Model.load(model_file("face_detection_full_range_sparse"))
    graph = build_graph(model)
    lines = shown(tables.inspect_tables(inspect_model(model, graph)))
    assert any("goes with its readers" in line for line in lines)
    assert "nothing has to stay together" in lines


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (ms_text(None), "-"), (ms_text(0.8312), "0.831"), (ms_text(12.44), "12.4"), (ms_text(120.4), "120"),
        (ms_text(1204.4), "1204"), (ms_text(0.00123), "0.00123"), (interval_text(None), "-"),
        (interval_text([0.82, 0.85]), "0.820 .. 0.850"), (ratio_text(None), "-"), (ratio_text(1.119), "1.12x"),
        (count_text(0), "0"), (count_text(999), "999"), (count_text(1234), "1.23 k"), (count_text(5_600_000), "5.6 M"),
        (bytes_text(10), "10 B"), (bytes_text(1023), "1023 B"), (bytes_text(1536), "1.5 KiB"),
        (bytes_text(1020 * 1024), "1020 KiB"), (bytes_text(5 << 30), "5 GiB"), (shape_text([1, -1, 3]), "1x?x3"),
        (shape_text([]), "scalar"), (agreement_text(None), "-"), (agreement_text({"max_abs": 0.0}), "equal"),
        (short_text("abc"), "abc"), (short_text("abcdefghijkl", 9), "abc...jkl"),
        (agreement_text({"has_nan": True}), "NaN or Inf in the outputs"),
    ],
)  # fmt: skip
def test_numbers_for_people(got: str, expected: str) -> None:
    assert got == expected


def test_names_do_not_steer_the_terminal() -> None:
    hostile = "a\x1b[31mRED\x07\x00\x9b\u202eb\n"
    assert printable(hostile) == "a\\x1b[31mRED\\x07\\x00\\x9b\\u202eb\n"
    assert printable("n\u00e4me [red]x[/red]\tok") == "n\u00e4me [red]x[/red]\tok"
    facts = {"map_file": hostile, "holds": True, "checks": [], "rows": [], "board_changes": [hostile]}
    assert "\x1b" not in "".join(str(part) for part in tables.verify_tables(facts))
