"""Files and folders appear whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeplace import atomic
from edgeplace.atomic import folder_atomic, write_atomic
from edgeplace.errors import OutputError


def test_writes_pieces_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomic(path, [b"one", memoryview(b"two")])
    assert path.read_bytes() == b"onetwo"
    write_atomic(path, [b"three"])
    assert path.read_bytes() == b"three"
    assert os.listdir(path.parent) == ["file"]


def test_longest_name_there_can_be(tmp_path: Path) -> None:
    write_atomic(tmp_path / ("n" * 255), [b"x"])
    with pytest.raises(OutputError, match="too long"):
        write_atomic(tmp_path / ("n" * 256), [b"x"])
    assert os.listdir(tmp_path) == ["n" * 255]


def test_mode_follows_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", [b""])
        write_atomic(tmp_path / "b", [b""], mode=0o700)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o700


def test_failure_in_the_middle_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, [b"old"])

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OutputError, match="No space left") as caught:
        write_atomic(path, pieces())
    assert "disk is full" in caught.value.hint
    assert caught.value.where == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_really_full_disk() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with pytest.raises(OSError) as caught, open("/dev/full", "wb", buffering=0) as stream:
        stream.write(b"x")
    assert caught.value.errno == errno.ENOSPC  # what the test above imitates


def test_other_errors_pass_through_and_clean_up(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "file", pieces())
    assert os.listdir(tmp_path) == []


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(atomic.tempfile, "mkstemp", refuse)  # a test run by root may write everywhere
    with pytest.raises(OutputError, match="Permission denied") as caught:
        write_atomic(tmp_path / "file", [b"x"])
    assert "allow writing" in caught.value.hint


def test_parent_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        write_atomic(tmp_path / "file" / "below", [b"x"])


def test_folder_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    with folder_atomic(path) as scratch:
        (scratch / "a").write_text("1")
        assert not path.exists()
    assert (path / "a").read_text() == "1"
    with folder_atomic(path) as scratch:
        (scratch / "a").write_text("2")
        (scratch / "b").write_text("3")
    assert (path / "a").read_text() == "2"
    assert sorted(os.listdir(path)) == ["a", "b"]
    assert os.listdir(path.parent) == ["folder"]


def test_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "precious").write_text("1")
    with pytest.raises(OutputError, match="precious"), folder_atomic(path) as scratch:
        (scratch / "a").touch()
    assert os.listdir(path) == ["precious"]
    assert os.listdir(tmp_path) == ["folder"]


def test_a_full_disk_within_the_block_is_explained(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No space left") as caught, folder_atomic(tmp_path / "folder"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "make room" in caught.value.hint
    assert os.listdir(tmp_path) == []


def test_folder_stays_when_the_work_fails(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with folder_atomic(path) as scratch:
        (scratch / "a").touch()

    def fail() -> None:
        with folder_atomic(path) as scratch:
            (scratch / "b").touch()
            raise RuntimeError("the work failed")

    with pytest.raises(RuntimeError):
        fail()
    assert os.listdir(path) == ["a"]
    assert os.listdir(tmp_path) == ["folder"]


def test_folder_comes_back_when_the_last_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder"
    with folder_atomic(path) as scratch:
        (scratch / "a").touch()
    rename = os.rename

    def refuse(source: Path, target: Path) -> None:
        if source.suffix == ".tmp":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    def replace() -> None:
        with folder_atomic(path) as scratch:
            (scratch / "b").touch()

    monkeypatch.setattr(atomic.os, "rename", refuse)
    with pytest.raises(OutputError):
        replace()
    assert os.listdir(path) == ["a"]
    assert os.listdir(tmp_path) == ["folder"]


def test_folder_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")

    def replace() -> None:
        with folder_atomic(tmp_path / "taken"):
            pass

    with pytest.raises(OutputError, match="file of this name"):
        replace()
    assert (tmp_path / "taken").read_text() == "mine"
