"""What the agent adds to a hand-over, against the runtime called directly.

A chain of small segments on the `interpreter` loader is run twice: by the agent's plan runner, and by a bare loop of
``np.copyto`` and ``Interpreter.invoke`` over interpreters of the same files. The difference per segment is what a
hand-over costs beyond the copy itself. The two take turns, and the lowest medians are compared: whatever else the
machine does only ever adds time.

    python tools/bench/handover.py [--limit-us 20]

Exit code 1 when the difference is above the limit for any size.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Callable

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from device_agents.runnable import RunnablePlan, WorkerContext, make_runnable
from edgeplace.testing.model_builder import Builder

SEGMENTS = 12
SIZES = (64, 4096, 65536, 262144)
PLATFORM = {
    "name": "cpu",
    "kind": "cpu",
    "loader": "interpreter",
    "runtime": "litert",
    "options": {"threads": 1},
}


def relu_file(folder: Path, elements: int, number: int) -> Path:
    """A file with one RELU over so many floats; the number makes each a file of its own."""
    builder = Builder()
    graph = builder.graph(f"segment{number}")
    graph.output(graph.unary("RELU", graph.input((1, elements))))
    path = folder / f"relu_{elements}_{number}.tflite"
    path.write_bytes(builder.finish())
    return path


def by_agent(files: list[Path]) -> RunnablePlan:
    """The chain as the worker runs it."""
    paths = {hashlib.sha256(path.read_bytes()).hexdigest(): str(path) for path in files}
    segments = [
        {
            "platform": "cpu",
            "model": name,
            "inputs": [["segment", n - 1, 0] if n else ["input", 0]],
            "outputs": 1,
        }
        for n, name in enumerate(paths)
    ]
    plan = {
        "segments": segments,
        "outputs": [["segment", len(segments) - 1, 0]],
        "platforms": {"cpu": PLATFORM},
    }
    return make_runnable(plan, paths, WorkerContext(lambda **facts: None))


def directly(files: list[Path], array: Any) -> Callable[[], None]:
    """The same chain with nothing but a copy and an invocation per segment."""
    interpreters = [Interpreter(model_path=str(path), num_threads=1) for path in files]
    views = []
    for interpreter in interpreters:
        interpreter.allocate_tensors()
        indices = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
        views.append(tuple(interpreter.tensor(index) for index in indices))

    def run() -> None:
        before: Callable[[], Any] = lambda: array  # noqa: E731  the first segment gets the graph's input
        for interpreter, (input_view, output_view) in zip(interpreters, views):
            np.copyto(input_view(), before())
            interpreter.invoke()
            before = output_view

    return run


def median_us(run: Callable[[], Any], rounds: int) -> float:
    """Median time of one call."""
    times = []
    for _ in range(rounds):
        started_ns = perf_counter_ns()
        run()
        times.append((perf_counter_ns() - started_ns) / 1e3)
    return statistics.median(times)


def main() -> int:
    """Print the table; exit code 1 above the limit."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--limit-us", type=float, default=20.0, help="most a hand-over may add (20)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side (15)")
    arguments = parser.parse_args()
    print("| floats handed over | direct us/segment | agent us/segment | added us | ratio |")
    print("|---|---|---|---|---|")
    worst_us = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for elements in SIZES:
            files = [relu_file(Path(folder), elements, number) for number in range(SEGMENTS)]
            array = np.random.default_rng(0).standard_normal((1, elements), dtype=np.float32)
            plan = by_agent(files)
            run_directly = directly(files, array)
            stamps: list[int] = []

            def run_by_agent(
                plan: RunnablePlan = plan, array: Any = array, stamps: list[int] = stamps
            ) -> None:
                stamps.clear()
                plan.execute([array], stamps)

            sides: dict[str, list[float]] = {"direct": [], "agent": []}
            for _ in range(arguments.rounds):
                sides["direct"].append(median_us(run_directly, 20) / SEGMENTS)
                sides["agent"].append(median_us(run_by_agent, 20) / SEGMENTS)
            direct, agent = (min(sides[side]) for side in ("direct", "agent"))
            worst_us = max(worst_us, agent - direct)
            print(
                f"| {elements} | {direct:.2f} | {agent:.2f} | {agent - direct:.2f} | {agent / direct:.2f} |"
            )
    print(f"\nworst: {worst_us:.2f} us added per hand-over; limit {arguments.limit_us:g} us")
    return int(worst_us > arguments.limit_us)


if __name__ == "__main__":
    sys.exit(main())
