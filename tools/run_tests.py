"""What `make test` runs, stage by stage, with the minutes each stage took.

``--full`` adds the full sweeps (marker ``full``) and writes a dated log to ``docs/logs/``.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

STAGES: tuple[tuple[str, list[str]], ...] = (
    ("lint", ["ruff", "check", "."]),
    ("format", ["ruff", "format", "--check", "."]),
    ("types", ["mypy"]),
    ("tests", ["pytest", "-q", "-m", "not full"]),
)
FULL_STAGE = ("full sweep", ["pytest", "-q", "-m", "full", "--timeout", "7200"])


def run_stage(name: str, argv: list[str]) -> tuple[float, str]:
    """Run one stage, echoing what it prints; gives seconds and text. Ends the program when the stage fails."""
    print(f"== {name}: {' '.join(argv)}", flush=True)
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", *argv], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    code = process.wait()
    seconds = time.monotonic() - began
    print(f"-- {name}: {seconds / 60:.1f} min, {'ok' if code == 0 else f'FAILED ({code})'}", flush=True)
    if code:
        sys.exit(code)
    return seconds, "".join(lines)


def main() -> None:
    """Run all stages; ends with the exit code of the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the full sweeps as well, with a dated log")
    full = parser.parse_args().full
    stages = [*STAGES, FULL_STAGE] if full else list(STAGES)
    results = [(name, *run_stage(name, argv)) for name, argv in stages]
    for name, seconds, _ in results:
        print(f"stage {name}: {seconds / 60:.1f} min")
    if full:
        log = ROOT / "docs" / "logs" / f"test-full-{datetime.date.today().isoformat()}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(
            "".join(f"== {name} ({seconds / 60:.1f} min)\n{text}" for name, seconds, text in results)
        )
        print(f"wrote {log.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
