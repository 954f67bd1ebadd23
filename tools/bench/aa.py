"""A live A/A run: the same model against itself, through the rule that picks winners.

Two copies of one model run in interleaved rounds, as in a final, many finals in a row. Nobody can be faster, so every
winner is a false one; the table says how many there were. The same times with one copy made 5 % faster (multiplied,
so the noise stays this machine's own) say how often a true gain would have been found.

    python tools/bench/aa.py model.tflite                      two interpreters in this process
    python tools/bench/aa.py model.tflite --board local        one plan twice, through the agent of a board
    python tools/bench/aa.py model.tflite --save times.npz     keep the raw times (tests/data/run_times is made so)
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeplace.measure.decision import DEFAULT_MARGIN, DEFAULT_ROUNDS, DEFAULT_RUNS_PER_ROUND, decide

Times = npt.NDArray[np.float64]
"""Milliseconds, ``[plan, round, run]``."""

GAIN = 0.05
WARMUP_RUNS = 20


def interpreter_times(model: Path, rounds: int, runs: int, threads: int) -> Times:
    """Times of two interpreters of one model in this process, interleaved."""
    from ai_edge_litert.interpreter import Interpreter

    invokes: list[Callable[[], None]] = []
    for _ in range(2):
        interpreter = Interpreter(model_path=str(model), num_threads=threads)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            rng = np.random.default_rng(0)
            interpreter.set_tensor(detail["index"], rng.random(detail["shape"]).astype(detail["dtype"]))
        invokes.append(interpreter.invoke)
    return interleaved(invokes, rounds, runs)


def agent_times(
    model_path: Path, board_name: str, platform_name: str | None, finals: int, rounds: int, runs: int
) -> Times:
    """Times of one plan, the whole model on one platform, entered twice into finals on a board, through its agent."""
    from edgeplace.controller.prepare import board_of, graph_on, inputs_for, workbench_on
    from edgeplace.controller.requests import Target
    from edgeplace.measure.board import bring_up
    from edgeplace.measure.measurement import Failure
    from edgeplace.measure.workbench import whole_plan
    from edgeplace.tflite.reader import Model

    model = Model.load(model_path)
    with bring_up(board_of(Target(board=board_name))) as board:
        if platform_name is not None and platform_name not in board.platforms:
            raise SystemExit(f"aa: no platform '{platform_name}' there; it has {', '.join(board.platforms)}")
        graph = graph_on(board, model, "", ())
        workbench = workbench_on(board, model, graph, run_deadline_s=60.0)
        plan = whole_plan(graph, platform_name or next(iter(board.platforms)))
        sample = inputs_for(graph, None).samples[0]
        series = []
        for _ in range(finals):
            times = workbench.interleave(
                [(plan, True), (plan, True)], sample, rounds=rounds, runs_per_round=runs
            )
            if isinstance(times, Failure):
                raise SystemExit(f"aa: {times}")
            series.append(np.array(times))
    return np.concatenate(series, axis=1)


def interleaved(invokes: Sequence[Callable[[], None]], rounds: int, runs: int) -> Times:
    """Run all in rounds as the agent does: another one begins each round, one run of each turn does not count."""
    for invoke in invokes:
        for _ in range(WARMUP_RUNS):
            invoke()
    times_ms = np.empty((len(invokes), rounds, runs))
    for number in range(rounds):
        for turn in range(len(invokes)):
            plan = (number + turn) % len(invokes)
            invokes[plan]()
            for run in range(runs):
                start_ns = time.perf_counter_ns()
                invokes[plan]()
                times_ms[plan, number, run] = (time.perf_counter_ns() - start_ns) / 1e6
    return times_ms


def judge(times_ms: Times, rounds: int, gain: float = GAIN) -> dict[str, Any]:
    """Shares of false winners and of found gains over the finals in a long interleaved series.

    Args:
        times_ms: ``[plan, round, run]``; cut into finals of ``rounds`` rounds that do not overlap.
    """
    finals = [
        times_ms[:, start : start + rounds] for start in range(0, times_ms.shape[1] - rounds + 1, rounds)
    ]
    if not finals:
        raise SystemExit(f"aa: {times_ms.shape[1]} rounds are less than one final of {rounds}")
    forward = [decide(first, second) for first, second in finals]
    backward = [decide(second, first) for first, second in finals]
    gained = [decide(first * (1 - gain), second) for first, second in finals]
    ratios = np.array([found.ratio for found in forward])
    return {
        "finals": len(finals),
        "rounds": rounds,
        "runs_per_round": int(times_ms.shape[2]),
        "margin": DEFAULT_MARGIN,
        "false_winners": sum(found.faster for found in forward + backward) / (2 * len(finals)),
        "gain": gain,
        "gain_found": sum(found.faster for found in gained) / len(finals),
        "interval_misses_1": sum(not found.ci95[0] <= 1 <= found.ci95[1] for found in forward) / len(finals),
        "interval_half_width": float(np.median([(found.ci95[1] - found.ci95[0]) / 2 for found in forward])),
        "ratio_median": float(np.median(ratios)),
        "ratio_p05": float(np.quantile(ratios, 0.05)),
        "ratio_p95": float(np.quantile(ratios, 0.95)),
        "p50_ms": float(np.median(times_ms)),
        "p99_ms": float(np.quantile(times_ms, 0.99)),
    }


def markdown(model: str, found: dict[str, Any]) -> str:
    """The findings as a table with two columns."""
    rows = [
        ("model", model),
        ("machine", f"{platform.machine()}, {platform.system()}"),
        ("one run, median / p99", f"{found['p50_ms']:.3f} / {found['p99_ms']:.3f} ms"),
        ("finals", f"{found['finals']} of {found['rounds']} rounds x {found['runs_per_round']} runs"),
        (f"false winners (margin {found['margin']:.0%})", f"{found['false_winners']:.1%}"),
        (f"a true gain of {found['gain']:.0%} found", f"{found['gain_found']:.1%}"),
        ("intervals that miss the true ratio 1", f"{found['interval_misses_1']:.1%}"),
        ("half width of the interval, median", f"{found['interval_half_width']:.2%}"),
        ("ratio, 5 % / median / 95 %", f"{found['ratio_p05']:.4f} / {found['ratio_median']:.4f} / {found['ratio_p95']:.4f}"),
    ]  # fmt: skip
    return "\n".join(["| A/A | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and give 1 when there were more than 5 % of false winners."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--finals", type=int, default=100, help="finals in a row (default 100)")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="rounds of each final")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS_PER_ROUND, help="runs per plan and round")
    parser.add_argument("--threads", type=int, default=1, help="of the interpreters in this process")
    parser.add_argument(
        "--board", help="run on this board, through its agent (a profile's name or ssh://...)"
    )
    parser.add_argument("--platform", help="on this platform of the board (default: its first)")
    parser.add_argument(
        "--save", type=Path, help="write the raw times (.npz: times_ns uint32 [plan, round, run])"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.board:
        times_ms = agent_times(
            options.model, options.board, options.platform, options.finals, options.rounds, options.runs
        )
    else:
        rounds = options.finals * options.rounds
        times_ms = interpreter_times(options.model, rounds, options.runs, options.threads)
    if options.save:
        np.savez_compressed(options.save, times_ns=np.rint(times_ms * 1e6).astype(np.uint32))
    found = judge(times_ms, options.rounds)
    print(
        json.dumps({"model": options.model.name, **found}, indent=2)
        if options.json
        else markdown(options.model.name, found)
    )
    return int(found["false_winners"] > 0.05)


if __name__ == "__main__":
    sys.exit(main())
