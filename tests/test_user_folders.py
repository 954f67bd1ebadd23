"""Users without a home folder, and folders that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import assert_explained, edgeplace

from edgeplace.boards import load_board
from edgeplace.boards.find import profile_folders
from edgeplace.errors import LinkError
from edgeplace.store.store import default_store_path
from edgeplace.testing.models import AUTHORED
from edgeplace.transport.base import open_log
from edgeplace.user_folders import NoHomeFolderError, expand_home, home_folder, xdg_folder


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``pathlib`` does for a user id that the machine does not know, without ``HOME``."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_folder_is_told_what_to_set() -> None:
    for ask in (home_folder, default_store_path, lambda: xdg_folder("XDG_CACHE_HOME", ".cache")):
        with pytest.raises(NoHomeFolderError, match="no home folder") as raised:
            ask()
        assert "HOME" in raised.value.hint


@pytest.mark.usefixtures("homeless")
def test_packaged_boards_need_no_home_folder() -> None:
    assert len(profile_folders()) == 1
    assert load_board("local").name == "local"


def test_a_variable_goes_before_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert xdg_folder("XDG_STATE_HOME", ".local/state") == tmp_path
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert xdg_folder("XDG_STATE_HOME", ".local/state") == tmp_path / "home" / ".local" / "state"


def test_a_home_folder_of_nobody() -> None:
    with pytest.raises(NoHomeFolderError, match="~nobody-of-that-name/x"):
        expand_home("~nobody-of-that-name/x")


def test_a_log_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="log cannot be written") as raised:
        open_log(tmp_path / "missing" / "agent.log")
    assert "XDG_STATE_HOME" in raised.value.hint


def test_a_state_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(AUTHORED["branchy"]())
    (tmp_path / "state").write_text("a file, not a folder")
    done = edgeplace(
        "optimize",
        "model.tflite",
        "--platform",
        "cpu1",
        folder=tmp_path,
        XDG_STATE_HOME=str(tmp_path / "state"),
    )
    assert_explained(done, 1, "state", "XDG_STATE_HOME")
