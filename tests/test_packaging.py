"""The wheel and the sdist: what they carry, and that an installed EdgePlace works with nothing of the tree at hand."""

from __future__ import annotations

import configparser
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from the files that are under version control."""
    folder = tmp_path_factory.mktemp("dist")
    tree = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(tree)],
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_list_of_packages_is_the_tree() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in ("edgeplace", "device_agents")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert listed == found | {"edgeplace._boards"}


@pytest.mark.slow(reason="builds the wheel and the sdist, each in an isolated environment")
def test_wheel_and_sdist_carry_the_boards_and_the_agent(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    boards = {f"edgeplace/_boards/{path.name}" for path in (ROOT / "boards").glob("*.yaml")}
    assert boards <= inside
    assert {
        "device_agents/__main__.py",
        "device_agents/runtimes/interpreter.py",
        "edgeplace/py.typed",
    } <= inside
    assert any(name.endswith(".j2") for name in inside)
    assert not any(name.startswith(("tests/", "tools/")) for name in inside)
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"boards/local.yaml", "device_agents/daemon.py", "LICENSE", "README.md"} <= names


@pytest.mark.slow(reason="installs the wheel and all it needs in an empty environment")
def test_an_installed_wheel_works_outside_the_tree(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    environment = tmp_path / "env"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert installed.returncode == 0, installed.stderr

    def run(*argv: str | Path) -> str:
        done = subprocess.run(
            [str(part) for part in argv], cwd=tmp_path, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    listed = run(environment / "bin" / "edgeplace", "boards", "list")
    assert "local" in listed
    assert "linux" in listed
    where = run(
        python, "-c", "import edgeplace, device_agents; print(edgeplace.__file__, device_agents.__file__)"
    )
    assert where.count(str(environment)) == 2
    # The agent, started from the wheel by the command line: its platforms answer.
    probed = run(environment / "bin" / "edgeplace", "boards", "probe", "local", "--platform", "cpu1")
    assert "cpu1" in probed
    assert "xnnpack" in probed
