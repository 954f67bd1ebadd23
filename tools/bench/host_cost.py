"""What reading, contracting and cutting cost on the host, against plainly copying the file.

A model of the wanted size is authored (a chain of convolutions and dense layers), then a child process per run reads
it, contracts it to units, cuts it in parts and writes the parts. Figures are ratios to a plain copy of the same file
in the same child, so they mean the same on any machine; the medians of several children are printed.

    python tools/bench/host_cost.py                        100 MB, 8 parts
    python tools/bench/host_cost.py --mb 10 --json         for machines
    python tools/bench/host_cost.py --model big.tflite     a model of one's own

Peak memory is the greatest resident size of the child, less what it had before it opened the model. It counts the
pages of the mapped file that were looked at, which the system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

STAGES = ("copy", "load", "contract", "cut", "write")
TARGET_S = 2.0
TARGET_MEMORY = 3.0
_LAYER_MB = 4


def author(path: Path, megabytes: int) -> None:
    """Write a chain of dense layers of 4 MB each behind a few convolutions."""
    from edgeplace.testing.model_builder import Builder
    from edgeplace.tflite import schema

    b = Builder(0)
    g = b.graph()
    x = g.input((1, 32, 32, 8), name="image")
    for _ in range(8):
        x = g.conv(x, 32)
    x = g.reshape(g.pool(x, 8), (1, 512))
    side = 1024
    x = g.dense(x, side)
    block = b.random.standard_normal((side, side), np.float32)
    for number in range(max(megabytes // _LAYER_MB, 1)):
        x = g.dense(x, side, activation=1, weights=g.constant(block + np.float32(number)))
    g.output(x)
    path.write_bytes(schema.pack(b.model, (megabytes + 8) << 20))


def measure(model_path: Path, parts: int) -> dict[str, float]:
    """Seconds per stage and bytes of peak memory, in this process (run it in a fresh one)."""
    from edgeplace.graph.build import build_graph
    from edgeplace.graph.contract import contract
    from edgeplace.placement.cut_points import cut_in_parts
    from edgeplace.placement.segments import SegmentCutter
    from edgeplace.tflite.reader import Model

    figures: dict[str, float] = {"size": model_path.stat().st_size}
    with tempfile.TemporaryDirectory(dir=model_path.parent) as folder:
        clock = time.perf_counter
        start = clock()
        with model_path.open("rb") as source, (Path(folder) / "copy").open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())  # as each written part is
        figures["copy"] = clock() - start
        before = _peak_bytes()
        start = clock()
        model = Model.load(model_path)
        figures["load"] = clock() - start
        start = clock()
        units = contract(build_graph(model), "unit")
        plan = cut_in_parts(units, min(parts, len(units.units))).plan
        figures["contract"] = clock() - start
        start = clock()
        cutter = SegmentCutter(model, units)
        files = [cutter.file(segment) for segment in plan.segments]
        figures["cut"] = clock() - start
        start = clock()
        for number, file in enumerate(files):
            file.write(Path(folder) / f"{number}.tflite")
        figures["write"] = clock() - start
        figures["parts"] = len(files)
        figures["units"] = len(units.units)
        figures["peak"] = _peak_bytes() - before
    return figures


def _peak_bytes() -> int:
    """Greatest resident size so far. (``ru_maxrss`` would not do: a child starts with its parent's.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def run_children(model_path: Path, parts: int, repeats: int) -> dict[str, float]:
    """Medians over fresh processes."""
    command = [sys.executable, __file__, "--child", str(model_path), "--parts", str(parts)]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(repeats)
    ]
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def report(figures: dict[str, float]) -> str:
    """The figures as a table, with the targets and whether they are met."""
    lines = [f"{figures['size'] / 1e6:.1f} MB, {figures['units']:.0f} units, {figures['parts']:.0f} parts"]
    lines.append(f"{'stage':<10}{'s':>9}{'x copy':>9}")
    for stage in STAGES:
        lines.append(f"{stage:<10}{figures[stage]:>9.3f}{figures[stage] / figures['copy']:>9.2f}")
    total = sum(figures[stage] for stage in STAGES[1:])
    memory = figures["peak"] / figures["size"]
    lines.append(f"{'total':<10}{total:>9.3f}{total / figures['copy']:>9.2f}   target under {TARGET_S:.0f} s")
    lines.append(f"peak memory {memory:.2f} x model   target under {TARGET_MEMORY:.0f}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mb", type=int, default=100, help="size of the authored model (default 100)")
    parser.add_argument("--parts", type=int, default=8, help="how many parts to cut it in (default 8)")
    parser.add_argument("--repeats", type=int, default=3, help="child processes to take the median of")
    parser.add_argument("--model", type=Path, help="take this model instead of authoring one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        print(json.dumps(measure(options.child, options.parts)))
        return 0
    with tempfile.TemporaryDirectory(prefix="edgeplace-bench-") as folder:
        path = Path(folder) / "model.tflite"
        if options.model is None:
            author(path, options.mb)
        else:
            shutil.copyfile(options.model, path)
        figures = run_children(path, options.parts, options.repeats)
    print(json.dumps(figures) if options.json else report(figures))
    total = sum(figures[stage] for stage in STAGES[1:])
    met = total < TARGET_S and figures["peak"] < TARGET_MEMORY * figures["size"]
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
