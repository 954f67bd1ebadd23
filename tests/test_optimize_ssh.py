"""One command places a model on a host that is reached over a real sshd, with the result shape of `local`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_runs import assert_explained, edgeplace
from sshd import Sshd

from edgeplace.delegate_map import load_map

pytestmark = pytest.mark.ssh

SHORT = (
    "--platform",
    "cpu1",
    "--platform",
    "cpu_ref",
    "--budget",
    "3",
    "--rounds",
    "12",
    "--sample-budget",
    "0.05",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    running = Sshd(tmp_path / "sshd")
    yield running
    running.stop()


def settings(server: Sshd) -> tuple[str, ...]:
    return (
        "--set", f"ssh.identity_file={server.user_key}",
        "--set", f"ssh.known_hosts={server.known_hosts}",
        "--set", f"agent.python={sys.executable}",
    )  # fmt: skip


def test_optimize_and_verify_over_ssh_give_what_local_gives(
    server: Sshd, model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    model = model_file("conv_chain")
    remote = edgeplace(
        "optimize",
        model,
        "--board",
        server.address,
        *settings(server),
        *SHORT,
        "-o",
        "remote.yaml",
        folder=tmp_path,
    )
    assert remote.returncode == 0, remote.stderr
    local = edgeplace("optimize", model, "--board", "local", *SHORT, "-o", "local.yaml", folder=tmp_path)
    assert local.returncode == 0, local.stderr
    there, here = load_map(tmp_path / "remote.yaml"), load_map(tmp_path / "local.yaml")
    assert there.board.name == server.address
    assert set(there.baselines) == set(here.baselines)
    assert there.search is not None
    assert here.search is not None
    assert there.search.placements == here.search.placements
    assert there.board.fingerprint == here.board.fingerprint
    assert there.model == here.model

    verified = edgeplace(
        "verify",
        "remote.yaml",
        "--model",
        model,
        *settings(server),
        "--rounds",
        "12",
        "--tolerance",
        "20",
        folder=tmp_path,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_a_host_key_that_is_not_known_is_refused_with_its_fingerprint(
    server: Sshd, model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    done = edgeplace(
        "optimize", model_file("conv_chain"), "--board", server.address,
        "--set", f"ssh.identity_file={server.user_key}", *SHORT, folder=tmp_path,
    )  # fmt: skip
    assert_explained(done, 1, "SHA256:", "127.0.0.1")
    assert not list(tmp_path.glob("*.yaml"))


def test_nobody_listening_is_a_link_error(
    server: Sshd, model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    server.stop()
    done = edgeplace(
        "optimize", model_file("conv_chain"), "--board", server.address, *settings(server), folder=tmp_path
    )
    assert_explained(done, 1, "127.0.0.1")
