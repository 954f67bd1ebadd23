"""Start the agent: ``python agent.pyz`` or ``python -m device_agents``. Speaks frames on standard input and output.

The same file started with ``--worker`` is the child in which models run; only the agent starts it so.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from device_agents import protocol, worker
from device_agents.bundle import running_archive
from device_agents.daemon import Daemon
from device_agents.health import HealthSources
from device_agents.store import DEFAULT_CAP_BYTES, make_root
from device_agents.worker_handle import WorkerHandle

LOG = logging.getLogger("device_agents")

EXIT_ROOT_UNUSABLE = 1
LOG_KEPT_BYTES = 8 * 1024 * 1024
_PIPE_ATOMIC_BYTES = 4096


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the agent or its worker; gives the exit code.

    0: the host closed the stream or said ``bye``. 1: the root folder cannot be used. 2: wrong arguments, or what the
    host sent is no frame. 128 + n: ended by signal n.
    """
    options = _parse(arguments)
    if options.worker:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
        return worker.main(options.worker_memory_bytes, options.parent_pid)
    incoming, outgoing = worker.take_standard_streams()
    try:
        make_root(options.root)
        if options.log is not None:
            _log_to(options.log)
    except OSError as error:
        return _refuse(outgoing, f"{error.filename or options.root}: {error.strerror or error}")
    logging.basicConfig(level=logging.INFO, stream=_LogStream(), format="%(asctime)s %(name)s: %(message)s")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)
    daemon = Daemon(
        incoming,
        outgoing,
        options.root,
        options.blob_cap_bytes,
        lambda variables: _start_worker(variables, options.worker_memory_bytes),
        HealthSources(sys=options.sys_root, proc=options.proc_root),
        options.owner,
    )
    return daemon.serve()


def default_root() -> Path:
    """``$XDG_CACHE_HOME/edgeplace-agent``, usually ~/.cache/edgeplace-agent."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "edgeplace-agent"


def _parse(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="device_agents", description="EdgePlace's agent on the board.", allow_abbrev=False
    )
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the only folder it writes to (~/.cache/edgeplace-agent)"
    )
    parser.add_argument("--blob-cap-bytes", type=_positive, default=DEFAULT_CAP_BYTES, metavar="N")
    parser.add_argument("--worker-memory-bytes", type=_positive, metavar="N", help="limit of the worker")
    parser.add_argument(
        "--owner", default="", metavar="ID", help="names the host's session; ends the agent it left behind"
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="where standard error goes")
    parser.add_argument(
        "--sys-root", type=Path, default=Path("/sys"), metavar="DIR", help="for emulated boards"
    )
    parser.add_argument(
        "--proc-root", type=Path, default=Path("/proc"), metavar="DIR", help="for emulated boards"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--parent-pid", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.root = options.root or default_root()
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


def _start_worker(variables: dict[str, str], memory_bytes: Optional[int]) -> WorkerHandle:
    """This same program as a worker, found by path, whatever the current folder is."""
    archive = running_archive()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **variables}
    command = [sys.executable]
    command += ["-I"] if sys.flags.isolated else []
    command += ["-S"] if sys.flags.no_site else []
    if archive is not None:
        command.append(str(archive))
    else:
        package_parent = str(Path(__file__).resolve().parent.parent)
        known = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package_parent, known]))
        command += ["-m", "device_agents"]
    command += ["--worker", "--parent-pid", str(os.getpid())]
    if memory_bytes is not None:
        command += ["--worker-memory-bytes", str(memory_bytes)]
    return WorkerHandle(command, environment, log=_write_log)


def _log_to(path: Path) -> None:
    """Send standard error to a file; one older file is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_KEPT_BYTES:
        os.replace(path, path.with_name(path.name + ".1"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 2)
    os.dup2(descriptor, 1)
    os.close(descriptor)


def _write_log(data: bytes) -> None:
    """Write to standard error as far as its reader keeps up: over SSH nobody may be reading it at all."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    for start in range(0, len(data), _PIPE_ATOMIC_BYTES):
        if not poll.poll(0):
            return
        try:
            os.write(2, data[start : start + _PIPE_ATOMIC_BYTES])
        except OSError:
            return


class _LogStream:
    """What the logging module writes to."""

    def write(self, text: str) -> None:
        """Write one record, or drop it when nobody reads."""
        _write_log(text.encode(errors="replace"))

    def flush(self) -> None:
        """Nothing is held back."""


def _refuse(outgoing: Any, reason: str) -> int:
    message = f"the agent's folder cannot be used: {reason}"
    os.write(2, f"edgeplace agent: {message}\n".encode())
    outgoing.write(protocol.MARKER)
    protocol.write_frame(outgoing, {**protocol.error_header("root_unusable", message), "id": None})
    return EXIT_ROOT_UNUSABLE


def _end(number: int, _frame: Any) -> None:
    """End in order: the exception unwinds to the place that ends the worker."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
