"""The agent's whole-model times against ``benchmark_litert_model`` of the same ai-edge-litert, on the CPU.

Both run each model with the same number of threads; they take turns, and the order changes from round to round. The
table gives the lowest median of the rounds, because whatever else the machine does only ever adds time; on a busy
machine the ratio still says more about the load than about the agent. The tool times a run alone
(``CompiledModel.run_by_name``, inputs stay in place), so the agent's time without the hand-over of the graph inputs is
what it is compared with; the total stands beside it.

    python tools/bench/whole_model.py [FOLDER] [--models N] [--rounds N] [--threads N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from device_agents import protocol

ROOT = Path(__file__).resolve().parent.parent.parent
PREFERRED = (
    "face_landmark", "face_detection_short_range", "hand_landmark_lite", "iris_landmark", "pose_detection",
    "face_detection_full_range_sparse", "palm_detection_lite", "visual_wake_words", "image_classification",
)  # fmt: skip
LIMIT = 0.05
TOOL_RESOLUTION_MS = 0.01


class Agent:
    """A real agent over pipes."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "device_agents", "--root", str(root)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._stdin = cast(BinaryIO, self._process.stdin)
        self._stdout = cast(BinaryIO, self._process.stdout)
        protocol.skip_to_marker(self._stdout)

    def ask(self, verb: str, payload: bytes = b"", **fields: Any) -> dict[str, Any]:
        """The answer's header.

        Raises:
            RuntimeError: The agent answered with an error or a failure.
        """
        protocol.write_frame(self._stdin, {"verb": verb, "id": 1, **fields}, payload)
        while True:
            header, _ = protocol.read_frame(self._stdout)
            if "event" not in header:
                break
        if not header["ok"]:
            raise RuntimeError(f"{verb}: {header}")
        return header

    def put(self, data: bytes) -> str:
        """Hash of a blob that the agent now has."""
        name = hashlib.sha256(data).hexdigest()
        self.ask("put", data, sha256=name)
        return name

    def close(self) -> None:
        """Hang up and wait for its end."""
        self._stdin.close()
        self._process.wait()
        self._stdout.close()


def agent_ms(agent: Agent, path: Path, threads: int) -> tuple[float, float]:
    """Median of the total, and of the segment alone."""
    interpreter = Interpreter(model_path=str(path))
    generator = np.random.default_rng(0)
    blobs = []
    for detail in interpreter.get_input_details():
        array = generator.uniform(-1, 1, detail["shape"]).astype(detail["dtype"])
        blobs.append(
            {"blob": agent.put(array.tobytes()), "dtype": array.dtype.name, "shape": list(array.shape)}
        )
    count = len(interpreter.get_output_details())
    plan = {
        "segments": [
            {
                "platform": "cpu",
                "model": agent.put(path.read_bytes()),
                "inputs": [["input", i] for i in range(len(blobs))],
                "outputs": count,
            }
        ],
        "outputs": [["segment", 0, k] for k in range(count)],
        "platforms": {
            "cpu": {
                "name": "cpu",
                "kind": "cpu",
                "loader": "interpreter",
                "runtime": "litert",
                "options": {"threads": threads},
            }
        },
    }
    timing = {"warmup_min_runs": 10, "warmup_min_s": 0.1, "min_runs": 50, "budget_s": 1.0}
    answer = agent.ask("measure", plan=plan, inputs=[blobs], timing=timing)
    return float(answer["p50_ms"]), float(answer["segment_ms"][0])


def benchmark_ms(path: Path, threads: int, runs: int) -> float:
    """The tool's median, from its own result file."""
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        # The file rounds to 0.01 ms, as the screen does: small models are run often enough, but read coarsely.
        command = [
            sys.executable, "-m", "ai_edge_litert.tools.benchmark_litert_model", f"--model={path}",
            f"--num_threads={threads}", f"--num_runs={runs}", "--warmup_runs=20", f"--result_json={result.name}",
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return float(json.loads(Path(result.name).read_text())["latency"]["median_ms"])


def choose(folder: Path, count: int) -> list[Path]:
    """Well-known models first, then what else is there."""
    there = {path.stem: path for path in sorted(folder.glob("*.tflite"))}
    names = [name for name in PREFERRED if name in there] + [name for name in there if name not in PREFERRED]
    return [there[name] for name in names[:count]]


def main() -> int:
    """Print the table; exit code 1 when a ratio is beyond 5 %."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / ".models")
    parser.add_argument("--models", type=int, default=8, help="how many (8)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (5)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (1)")
    arguments = parser.parse_args()
    models = choose(arguments.folder, arguments.models)
    if not models:
        parser.error(f"no .tflite file in {arguments.folder}; get some with: python tools/fetch_models.py")
    print("| model | benchmark_litert_model ms | agent ms | ratio | agent with input copy ms |")
    print("|---|---|---|---|---|", flush=True)
    beyond = 0
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(Path(folder) / "agent")
        for path in models:
            theirs: list[float] = []
            totals: list[float] = []
            alone: list[float] = []

            def our_turn(path: Path = path, totals: list[float] = totals, alone: list[float] = alone) -> None:
                total, segment = agent_ms(agent, path, arguments.threads)
                totals.append(total)
                alone.append(segment)

            for number in range(arguments.rounds):
                if number % 2:
                    our_turn()
                theirs.append(benchmark_ms(path, arguments.threads, 200))
                if not number % 2:
                    our_turn()
            their_ms, our_ms, total_ms = (min(series) for series in (theirs, alone, totals))
            ratio = our_ms / their_ms
            # The tool's own rounding says nothing about the agent.
            beyond += abs(ratio - 1) > LIMIT + TOOL_RESOLUTION_MS / 2 / their_ms
            print(
                f"| {path.stem} | {their_ms:.3f} | {our_ms:.3f} | {ratio:.3f} | {total_ms:.3f} |", flush=True
            )
        agent.close()
    print(
        f"\n{beyond} of {len(models)} beyond {LIMIT:.0%} and the tool's rounding to {TOOL_RESOLUTION_MS} ms"
    )
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(main())
