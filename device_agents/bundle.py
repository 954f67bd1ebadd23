"""The agent as one file: a zipapp with the same bytes wherever it is built, named by its hash.

The entries are stored, not compressed (compressed bytes differ between zlib builds), sorted, with one fixed time.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

SHEBANG = b"#!/usr/bin/env python3\n"
_ENTRY_TIME = (2020, 1, 1, 0, 0, 0)
# Plain enough for any Python 3 to read, so that an old one says what it lacks.
_MAIN = b"""import sys

if sys.version_info < (3, 9):
    sys.exit("edgeplace agent: Python 3.9 or newer is needed; this is %d.%d" % sys.version_info[:2])

from device_agents.__main__ import main

sys.exit(main())
"""


def build_agent_bytes(package_dir: Path) -> bytes:
    """The agent's zipapp from the folder of the ``device_agents`` package.

    It starts with ``python agent.pyz``, and under ``python -I -S`` too. The same sources give the same bytes.

    Raises:
        OSError: A source cannot be read.
        ValueError: The folder is not the package.
    """
    sources = sorted(path for path in package_dir.rglob("*.py") if "__pycache__" not in path.parts)
    names = [f"device_agents/{path.relative_to(package_dir).as_posix()}" for path in sources]
    if "device_agents/__main__.py" not in names:
        raise ValueError(f"{package_dir} is not the device_agents package")
    buffer = io.BytesIO()
    buffer.write(SHEBANG)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_entry("__main__.py"), _MAIN)
        for name, path in zip(names, sources):
            archive.writestr(_entry(name), path.read_bytes())
    return buffer.getvalue()


def agent_sha256() -> str:
    """The hash of the running agent: of its zipapp, or of the one its package would give.

    So an agent started from the package and its zipapp go by the same hash.
    """
    archive = running_archive()
    data = build_agent_bytes(Path(__file__).parent) if archive is None else archive.read_bytes()
    return hashlib.sha256(data).hexdigest()


def running_archive() -> Path | None:
    """The zipapp this code runs from, or None when it runs from a folder."""
    archive = getattr(__spec__.loader, "archive", None) if __spec__ is not None else None
    return None if archive is None else Path(archive).resolve()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _ENTRY_TIME)
    entry.create_system = 3  # Unix, also when built elsewhere
    entry.external_attr = 0o644 << 16
    return entry
