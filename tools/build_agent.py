"""Write the agent as one file: ``python tools/build_agent.py agent.pyz``. Prints its hash."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path

import device_agents
from device_agents.bundle import build_agent_bytes


def main() -> int:
    """Build from the ``device_agents`` package this Python imports."""
    parser = argparse.ArgumentParser(description="Write the board's agent as one file (a zipapp).")
    parser.add_argument("output", type=Path, metavar="FILE", help="where to write, usually agent.pyz")
    arguments = parser.parse_args()
    data = build_agent_bytes(Path(device_agents.__file__).parent)
    temporary = arguments.output.with_name(arguments.output.name + ".new")
    temporary.write_bytes(data)
    temporary.chmod(0o755)
    os.replace(temporary, arguments.output)
    print(hashlib.sha256(data).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
