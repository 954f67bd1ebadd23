"""Place real models on this machine: is the map right, does `verify` hold, does the generated runner agree?

    python tools/bench/models.py [--models NAME ...] [--out docs/bench]

For each model: `optimize` over the named platforms (every placement when there are fewer than the threshold, else the
surrogate), `verify`, `generate`, and the generated runner on the inputs that the agent ran. Writes `models.md` (the
table) and `maps/NAME.yaml` into the folder. Times are of the machine it runs on; ratios are within one final.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgeplace import controller
from edgeplace.boards import load_board
from edgeplace.controller.prepare import graph_on, inputs_for, workbench_on
from edgeplace.delegate_map import DelegateMap, load_map, plan_from_map
from edgeplace.measure.board import bring_up
from edgeplace.measure.measurement import Failure
from edgeplace.store import Store
from edgeplace.tflite.reader import Model

ROOT = Path(__file__).resolve().parent.parent.parent
CPU_NPU = ("cpu", "cpu1", "npu")


@dataclass(frozen=True)
class Case:
    """One model of the benchmark and how it is searched."""

    name: str
    kind: str
    platforms: tuple[str, ...] = CPU_NPU
    threshold: int = 256
    budget: int | None = None
    granularity: str = "unit"


CASES = (
    Case("face_landmark", "float, 2 outputs", budget=64),
    Case("face_detection_short_range", "fp16 weights, residual", budget=64),
    Case("face_detection_full_range_sparse", "sparse, 388 ops", budget=48),
    Case("hand_landmark_lite", "fp16 weights, 4 outputs", budget=64),
    Case("hand_recrop", "float, skips", ("cpu", "cpu1", "npu", "gpu"), granularity="block", threshold=512),
    Case("iris_landmark", "float, residual", budget=64),
    Case("palm_detection_lite", "fp16 weights, residual", budget=96),
    Case("face_detection_back", "fp16 weights, residual", budget=96),
    Case("selfie_segmentation", "custom op that only XNNPACK has", granularity="block"),
    Case("okay_nabu", "int8, streaming state"),
    Case("image_classification", "int8, residual", ("cpu1", "npu")),
    Case("visual_wake_words", "int8 body, float I/O", budget=48),
    Case("keyword_spotting", "int8", ("cpu1", "npu"), threshold=1024),
    Case("anomaly_detection", "int8, side path", ("cpu1", "npu"), threshold=1024),
)  # fmt: skip


def place(case: Case, folder: Path) -> dict[str, Any]:
    """All steps for one model; gives the facts of its row."""
    model = ROOT / ".models" / f"{case.name}.tflite"
    map_path = folder / f"{case.name}.yaml"
    began_s = time.monotonic()
    outcome = controller.optimize(
        controller.OptimizeRequest(
            model=model,
            target=controller.Target(platforms=case.platforms),
            out=map_path,
            granularity=case.granularity,
            threshold=case.threshold,
            budget=case.budget,
            sample_budget_s=0.5,
            store=str(folder / "store.sqlite"),
        )
    )
    minutes = (time.monotonic() - began_s) / 60
    verdict = controller.verify(controller.VerifyRequest(map=map_path, model=model))
    controller.generate(map_path, folder / case.name, model=model)
    return {
        "case": case,
        "map": outcome.map,
        "rows": outcome.rows,
        "minutes": minutes,
        "verify": verdict["holds"],
        "failed_checks": [check["name"] for check in verdict["checks"] if not check["holds"]],
        "runner": runner_agrees(outcome.map, model, folder / case.name),
    }


def write_every_placement(store_path: Path, path: Path) -> None:
    """All placements that an exhaustive search measured, fastest first: platforms per unit, median, interval."""
    with Store.open(store_path) as store:
        key = store.sessions()[-1].key
        records = store.session(key, {}, resume=True).records("measure")
    rows = []
    for record in records:
        found = record.measurement
        assert found is not None
        placement = " ".join(record.platforms)
        if found.timing is None:
            rows.append((float("inf"), f"{placement}\t-\t{found.failure}"))
        else:
            low_ms, high_ms = found.timing.ci95_ms
            text = f"{placement}\t{found.timing.p50_ms:.4g}\t{low_ms:.4g} .. {high_ms:.4g}"
            rows.append((found.timing.p50_ms, text))
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["platform of each unit\tp50 ms\t95 % interval, or why not", *(text for _, text in sorted(rows))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def runner_agrees(delegate_map: DelegateMap, model_path: Path, code: Path) -> str:
    """``bit for bit`` when the generated runner gives what the agent gives for the same placement, else how far off."""
    model = Model.load(model_path)
    with bring_up(load_board("local", platforms=tuple(delegate_map.platforms))) as board:
        graph = graph_on(board, model, "", ())
        sample = inputs_for(graph, None).samples[0]
        found = workbench_on(board, model, graph, 30.0).run(plan_from_map(delegate_map, graph), [sample])
    if isinstance(found, Failure):
        return str(found)
    np.savez(code / "x.npz", **dict(zip(graph.input_names, sample, strict=True)))
    ran = subprocess.run(
        [sys.executable, "runner.py", "--inputs", "x.npz", "--outputs", "y.npz"],
        cwd=code,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        return ran.stderr.strip().splitlines()[-1]
    with np.load(code / "y.npz") as outputs:
        pairs = [(outputs[name], array) for name, array in zip(outputs.files, found.outputs[0], strict=True)]
    if all(mine.tobytes() == theirs.tobytes() for mine, theirs in pairs):
        return "bit for bit"
    worst = max(float(np.abs(m.astype(np.float64) - t.astype(np.float64)).max()) for m, t in pairs)
    return f"max abs {worst:.3g}"


def table_line(facts: dict[str, Any]) -> str:
    """One line of the table."""
    delegate_map: DelegateMap = facts["map"]
    result, search = delegate_map.result, delegate_map.search
    assert result is not None
    assert search is not None
    used = list(dict.fromkeys(segment.platform for segment in delegate_map.segments))
    rows = {row["name"]: row for row in facts["rows"]}
    singles = [f"{name} {_ms(row)}" for name, row in rows.items() if row["kind"] == "single platform"]
    mix = rows.get("fastest mix")
    default = rows.get("runtime-default")
    over_default = "-"
    if default is not None and default["p50_ms"]:
        over_default = f"{default['p50_ms'] / result.p50_ms:.2f}x"
    return " | ".join(
        [
            "",
            facts["case"].name,
            facts["case"].kind,
            "<br>".join(singles),
            _ms(default) if default else "-",
            f"{_ms(mix)} ({mix['segments']} segments)" if mix else "-",
            f"**{' + '.join(used)}** {result.p50_ms:.3g} ms",
            "-" if result.speedup_over_best_single is None else f"{result.speedup_over_best_single:.2f}x",
            over_default,
            f"{search.method} {search.measured} of {search.placements}",
            "yes" if facts["verify"] else f"no: {', '.join(facts['failed_checks'])}",
            facts["runner"],
            f"{facts['minutes']:.1f}",
            "",
        ]
    ).strip()


def _ms(row: dict[str, Any]) -> str:
    return f"{row['p50_ms']:.3g}" if row["p50_ms"] is not None else str(row["failure"]).split(":")[0]


def main() -> None:
    """Place the models, print their rows, write the table and the maps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=[], help="only these")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "bench")
    arguments = parser.parse_args()
    cases = [case for case in CASES if not arguments.models or case.name in arguments.models]
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for case in cases:
            print(f"== {case.name}", flush=True)
            facts = place(case, folder)
            lines.append(table_line(facts))
            print(lines[-1], facts["map"].result.decision, sep="\n", flush=True)
            maps = arguments.out / "maps"
            maps.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / f"{case.name}.yaml", maps)
            search = load_map(maps / f"{case.name}.yaml").search
            if search is not None and search.method == "exhaustive":
                write_every_placement(
                    folder / "store.sqlite", arguments.out / "exhaustive" / f"{case.name}.tsv"
                )
    head = [
        "# Real models placed on one machine",
        "",
        f"`python tools/bench/models.py`, {datetime.date.today().isoformat()}, {platform.machine()}, "
        f"Python {platform.python_version()}. Milliseconds are medians; *chosen* is decided in an interleaved final, and",
        "its gain over the best single platform is the paired ratio of that final. *npu* is LiteRT's OpenVINO dispatch on",
        "the CPU, *gpu* LiteRT's GPU accelerator on SwiftShader: real runtimes, on a machine without the hardware.",
        "The maps are in [maps/](maps/); for models whose placements were all measured, every one of them is in",
        "[exhaustive/](exhaustive/), fastest first.",
        "",
        "| model | kind | single platforms, ms | runtime default, ms | fastest mix, ms | chosen | over best single "
        "| over default | search: measured of feasible | verify holds | runner and agent | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    if not arguments.models:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "models.md").write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
