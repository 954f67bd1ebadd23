"""Bad input on the command line: a clear error, a documented exit code, nothing half-written."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_runs import assert_explained, edgeplace

from edgeplace.testing.models import AUTHORED


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(AUTHORED["branchy"]())
    return path


def short(*argv: str) -> tuple[str, ...]:
    return (*argv, "--budget", "2", "--rounds", "12", "--sample-budget", "0.02")


@pytest.mark.parametrize("verb", ["inspect", "optimize", "cut"])
def test_a_missing_model(verb: str, tmp_path: Path) -> None:
    extra = ("--parts", "2", "-o", "out") if verb == "cut" else ()
    done = edgeplace(verb, "nothere.tflite", *extra, folder=tmp_path)
    assert_explained(done, 2, "nothere.tflite: there is no such file")


def test_an_empty_model(tmp_path: Path) -> None:
    (tmp_path / "empty.tflite").touch()
    assert_explained(edgeplace("inspect", "empty.tflite", folder=tmp_path), 2, "the file is empty")


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "text.tflite").write_text("this is not a model, it is a sentence")
    assert_explained(edgeplace("optimize", "text.tflite", folder=tmp_path), 2, "text.tflite", "not a")


def test_a_model_whose_operators_no_platform_supports(tmp_path: Path) -> None:
    (tmp_path / "custom.tflite").write_bytes(AUTHORED["unknown_custom_op"]())
    done = edgeplace(*short("optimize", "custom.tflite", "--platform", "cpu1"), folder=tmp_path)
    assert_explained(done, 1, "EdgePlaceUnknown")
    assert not (tmp_path / "custom.local.yaml").exists()


def test_a_model_without_operators(tmp_path: Path) -> None:
    (tmp_path / "none.tflite").write_bytes(AUTHORED["zero_ops"]())
    done = edgeplace(*short("optimize", "none.tflite", "--platform", "cpu1"), folder=tmp_path)
    assert_explained(done, 2, "no operators")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"wrong": np.zeros((1, 16, 16, 4), np.float32)}, ("wrong", "image")),
        ({"image": np.zeros((1, 5, 5, 4), np.float32)}, ("[1, 5, 5, 4]", "[1, 8, 8, 4]")),
        ({"image": np.zeros((1, 16, 16, 4), np.complex64)}, ("complex64", "float32")),
    ],
    ids=["name", "shape", "type"],
)
def test_inputs_that_do_not_fit(
    model: Path, tmp_path: Path, arrays: dict[str, np.ndarray], words: tuple[str, ...]
) -> None:
    np.savez(tmp_path / "inputs.npz", **arrays)
    done = edgeplace(
        *short("optimize", "model.tflite", "--inputs", "inputs.npz", "--platform", "cpu1"), folder=tmp_path
    )
    assert_explained(done, 2, "inputs.npz", *words)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--board", "locla"), ("no board named 'locla'", "local")),
        (("--platform", "cpuu"), ("cpuu", "cpu")),
        (("--platform", "x=delegate"), ("x=delegate",)),
        (("--set", "platforms.cpu.options.thread=2"), ("thread",)),
        (("--pin", "CONV_2D=nowhere", "--platform", "cpu1"), ("nowhere",)),
        (
            ("--pin", "CONV_2D=cpu1", "--pin", "0=cpu_ref", "--platform", "cpu1", "--platform", "cpu_ref"),
            ("cpu1", "cpu_ref"),
        ),
        (("--pin", "NOSUCH*=cpu1", "--platform", "cpu1"), ("NOSUCH*",)),
        (("--pin", "nonsense"), ("NODES=PLATFORM",)),
        (("--granularity", "fine"), ("fine", "unit")),
        (("--metric", "nomodule:f"), ("nomodule",)),
        (("--optimizer", "exhastive", "--platform", "cpu1"), ("exhaustive",)),
        (("--shape", "nope=3", "--platform", "cpu1"), ("nope",)),
        (("--signature", "nope", "--platform", "cpu1"), ("nope",)),
        (("--budget", "0"), ("budget",)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else str(value),
)
def test_options_that_name_what_is_not_there(
    model: Path, tmp_path: Path, argv: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = edgeplace("optimize", "model.tflite", "--rounds", "12", *argv, folder=tmp_path)
    assert_explained(done, 2, *words)
    assert not (tmp_path / "model.local.yaml").exists()


def test_no_permission_to_write_is_said_before_anything_is_measured(model: Path, tmp_path: Path) -> None:
    missing = edgeplace("optimize", "model.tflite", "-o", "no/such/folder/map.yaml", folder=tmp_path)
    assert_explained(missing, 1, "no/such/folder", "mkdir")
    (tmp_path / "folder").mkdir()
    assert_explained(edgeplace("optimize", "model.tflite", "-o", "folder", folder=tmp_path), 1, "folder")


@pytest.mark.parametrize("verb", ["cut", "generate"])
def test_a_folder_with_other_files_in_it_is_never_replaced(placed: Path, tmp_path: Path, verb: str) -> None:
    precious = tmp_path / "out" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("three years of work")
    argv = (
        ("cut", placed / "model.tflite", "--parts", "2")
        if verb == "cut"
        else ("generate", placed / "map.yaml")
    )
    assert_explained(edgeplace(*argv, "-o", "out", folder=tmp_path), 1, "thesis.txt", "would be lost")
    assert precious.read_text() == "three years of work"
    assert [path.name for path in precious.parent.iterdir()] == ["thesis.txt"]
    for _ in range(2):  # what it wrote itself it replaces
        assert edgeplace(*argv, "-o", "fresh", folder=tmp_path).returncode == 0


def fill(path: Path) -> None:
    """Write until the file system has no room left."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 4096)


@pytest.mark.skipif(os.geteuid() != 0, reason="a full disk needs a file system of its own: run as root")
def test_a_full_disk_leaves_nothing_half_written(model: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    try:
        done = edgeplace("cut", "model.tflite", "--parts", "2", "-o", small / "out", folder=tmp_path)
        fill(small / "filler")
        again = edgeplace("cut", "model.tflite", "--parts", "2", "-o", small / "out2", folder=tmp_path)
        left = sorted(path.name for path in small.iterdir())
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert_explained(again, 1, "No space left", "disk is full")
    assert done.returncode == 0, done.stderr
    assert left == ["filler", "out"]


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and its map."""
    folder = tmp_path_factory.mktemp("placed")
    (folder / "model.tflite").write_bytes(AUTHORED["branchy"]())
    done = edgeplace(
        *short("optimize", "model.tflite", "--platform", "cpu1", "-o", "map.yaml"), folder=folder
    )
    assert done.returncode == 0, done.stderr
    return folder


def edited(placed: Path, folder: Path, old: str, new: str) -> Path:
    text = (placed / "map.yaml").read_text()
    assert old in text
    path = folder / "edited.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize("verb", [("map", "validate"), ("verify",), ("generate",)], ids=lambda v: v[-1])
def test_a_map_for_another_model(placed: Path, tmp_path: Path, verb: tuple[str, ...]) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes(AUTHORED["conv_chain"]())
    extra = ("-o", tmp_path / "out") if verb == ("generate",) else ()
    done = edgeplace(*verb, placed / "map.yaml", "--model", other, *extra, folder=tmp_path)
    assert_explained(done, 2, "map.yaml:", "another model")
    assert not (tmp_path / "out").exists()


def test_a_map_edited_to_place_a_node_twice_or_not_at_all(placed: Path, tmp_path: Path) -> None:
    twice = edited(placed, tmp_path, "nodes: [0-13]", "nodes: [0-13, 5]")
    assert_explained(
        edgeplace("map", "validate", twice, "--model", placed / "model.tflite", folder=tmp_path),
        2,
        "5",
        "twice",
    )
    missing = edited(placed, tmp_path, "nodes: [0-13]", "nodes: [0-4, 6-13]")
    for verb in (("map", "validate"), ("verify",)):
        done = edgeplace(*verb, missing, "--model", placed / "model.tflite", folder=tmp_path)
        assert_explained(done, 2, "edited.yaml:", "5")


@pytest.mark.parametrize(
    ("pattern", "new", "words"),
    [
        (r"(result:\n  p50_ms: ).*", r"\1.nan", ("result.p50_ms", "is not a number")),
        (r"(result:\n  p50_ms: ).*", r"\1-1.0", ("result.p50_ms", "greater than or equal to 0")),
        (r"(result:\n  p50_ms: ).*", r"\1.inf", ("result.p50_ms", "finite")),
        (r"(runtime-default: )[0-9.e-]+", r"\1.nan", ("baselines.runtime-default", "is not a number")),
        (r"(  nodes: )14\n", r"\g<1>1000000000\n", ("model.nodes", "less than or equal to")),
        (r"(  nodes: )14\n", r"\g<1>15\n", ("14 nodes, not 15",)),
        (r"(  limit: ).*", r"\1{snr_db: .nan}", ("result.limit.snr_db", "is not a number")),
    ],
)
def test_numbers_that_no_measurement_gives_are_refused_in_a_map(
    placed: Path, tmp_path: Path, pattern: str, new: str, words: tuple[str, ...]
) -> None:
    text, count = re.subn(pattern, new, (placed / "map.yaml").read_text())
    assert count == 1
    (tmp_path / "edited.yaml").write_text(text)
    done = edgeplace("map", "validate", "edited.yaml", "--model", placed / "model.tflite", folder=tmp_path)
    assert_explained(done, 2, "edited.yaml:", *words)
    assert "quotes" not in done.stderr


def test_a_map_whose_model_is_gone_says_where_it_was_looked_for(placed: Path, tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text((placed / "map.yaml").read_text())
    done = edgeplace("verify", "map.yaml", folder=tmp_path)
    assert_explained(done, 2, "model.tflite", "--model")


def test_unknown_keys_in_a_map_are_refused_with_file_and_line(placed: Path, tmp_path: Path) -> None:
    path = (
        edited(placed, tmp_path, "granularity", "granulrity")
        if "granularity" in (placed / "map.yaml").read_text()
        else edited(placed, tmp_path, "nodes: 14", "nods: 14")
    )
    done = edgeplace("map", "show", path, folder=tmp_path)
    assert_explained(done, 2, "edited.yaml:", "did you mean")


def test_a_closed_pipe_is_no_error(model: Path, tmp_path: Path) -> None:
    command = f"{sys.executable} -m edgeplace inspect {model} --json | head -c 10"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("extra", [(), ("--json",)], ids=["table", "json"])
def test_output_that_cannot_be_written_is_explained(
    model: Path, tmp_path: Path, extra: tuple[str, ...]
) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "edgeplace", "inspect", str(model), *extra],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    assert "standard output: cannot be written: No space left on device" in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error_and_take_no_files_place(
    model: Path, tmp_path: Path, closed: str
) -> None:
    command = f"{sys.executable} -m edgeplace cut {model} --parts 2 -o {tmp_path}/out {closed}"
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 0
    assert (tmp_path / "out").is_dir()
    wrong = f"{sys.executable} -m edgeplace inspect nothere.tflite {closed}"
    assert subprocess.run(["bash", "-c", wrong], capture_output=True, check=False).returncode == 2


@pytest.mark.parametrize("name", [b"b\xffd.tflite", b"new\nline.tflite", b"back\\slash.tflite"])
def test_a_file_name_that_a_map_cannot_hold_is_refused_before_anything_is_measured(
    model: Path, tmp_path: Path, name: bytes
) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.write_bytes(model.read_bytes())
    done = edgeplace("optimize", path, "--platform", "cpu1", folder=tmp_path)
    assert_explained(done, 2, "a delegate map cannot hold this file name", "rename")
    for extra in ((), ("--json",)):  # it can be looked at, whatever the terminal's encoding
        done = edgeplace("inspect", path, *extra, folder=tmp_path, PYTHONIOENCODING="utf-8:strict")
        assert done.returncode == 0, done.stderr


def test_results_go_to_stdout_and_json_is_the_only_thing_there(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    import json

    done = edgeplace("inspect", model_file("branchy"), "--json", folder=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["totals"]["operators"] == 14
    assert done.stderr == ""
