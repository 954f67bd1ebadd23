"""Board profiles: what the packaged ones say, where profiles are found, and what the command line changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from edgeplace.boards import (
    BoardProfile,
    PlatformProfile,
    list_boards,
    load_board,
    parse_address,
    platform_spec,
    profile_folders,
    spec_from_wire,
)
from edgeplace.errors import EdgePlaceError, InputError, ProfileError, UnknownNameError
from edgeplace.schema import dump_model, json_schema, parse_model

ROOT = Path(__file__).resolve().parent.parent

PROFILE = """\
format: edgeplace/board@1
name: pi
title: A board on the desk
address: ssh://edge@pi.lan
platforms:
  cpu: {kind: cpu, loader: interpreter, options: {threads: cores}}
"""


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the user's own profiles."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "config" / "edgeplace" / "boards"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def boards_dir(tmp_path: Path) -> Path:
    """A folder for ``--boards-dir`` with one profile."""
    folder = tmp_path / "boards"
    folder.mkdir()
    (folder / "pi.yaml").write_text(PROFILE)
    return folder


def problem(*args: Any, **kwargs: Any) -> str:
    """The error of :func:`load_board` as the command line prints it."""
    with pytest.raises(EdgePlaceError) as caught:
        load_board(*args, **kwargs)
    return f"{type(caught.value).__name__}: {caught.value} | {caught.value.hint}"


def test_the_local_board() -> None:
    board = load_board("local")
    assert board.address == "local"
    assert list(board.platforms) == ["cpu", "cpu1", "cpu_ref", "gpu", "npu"]
    wire = {name: platform_spec(name, platform, 4) for name, platform in board.platforms.items()}
    assert wire["cpu"]["options"] == {"kernels": "xnnpack", "threads": 4}
    assert wire["cpu1"]["options"] == {"kernels": "xnnpack", "threads": 1}
    assert wire["cpu_ref"]["options"]["kernels"] == "reference"
    assert (wire["gpu"]["kind"], wire["gpu"]["loader"]) == ("gpu", "compiled_model")
    assert (wire["npu"]["kind"], wire["npu"]["options"]) == ("npu", {"graph_backend": "CPU"})


@pytest.mark.parametrize("entry", list_boards(), ids=lambda entry: entry.name)
def test_packaged_profiles_are_valid_and_fit_their_json_schema(entry: Any) -> None:
    assert entry.problem == ""
    jsonschema.validate(yaml.safe_load(entry.path.read_text()), json_schema(BoardProfile))
    again = parse_model(BoardProfile, dump_model(entry.profile), "again.yaml")
    assert again == entry.profile


def test_an_unknown_host_gets_the_generic_platforms() -> None:
    board = load_board("ssh://edge@box.lan:2222")
    assert (board.name, board.address) == ("box.lan", "ssh://edge@box.lan:2222")
    assert board.platforms == load_board("local").platforms
    assert load_board("ssh://[fd00::1%eth0]").name == "fd00-1-eth0"


def test_addresses() -> None:
    address = parse_address("ssh://edge@box.lan:2222")
    assert (address.user, address.host, address.port) == ("edge", "box.lan", 2222)
    address = parse_address("ssh://[fd00::1]")
    assert (address.user, address.host, address.port) == ("", "fd00::1", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ssh://edge:secret@box", "carries no password"),
        ("ssh://box:99999", "Port out of range"),
        ("ssh://box:0", "no port 0"),
        ("ssh://", "is not an address"),
        ("ssh://box/some/path", "is not an address"),
        ("ssh://box?x=1", "is not an address"),
        ("telnet://box", "is not an address"),
        ("ssh://-oProxyCommand=x", "is not a host name"),
        ("ssh://a b", "is not a host name"),
    ],
)
def test_what_is_not_an_address(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_address(text)
    assert words in caught.value.message
    assert "secret" not in str(caught.value)
    assert caught.value.hint


def test_given_folders_come_first_then_the_users_own_then_the_packaged(
    boards_dir: Path, own_config: Path
) -> None:
    assert load_board("pi", [boards_dir]).title == "A board on the desk"
    (own_config / "pi.yaml").write_text(PROFILE.replace("on the desk", "of mine"))
    (own_config / "local.yaml").write_text(PROFILE.replace("name: pi", "name: local"))
    assert load_board("pi").title == "A board of mine"
    assert load_board("pi", [boards_dir]).title == "A board on the desk"
    assert load_board("local").title == "A board on the desk"
    assert profile_folders([boards_dir])[:2] == (boards_dir, own_config)
    names = {entry.name: entry.path.parent for entry in list_boards([boards_dir])}
    assert (names["pi"], names["local"]) == (boards_dir, own_config)


def test_a_profile_that_cannot_be_read_is_listed_with_its_problem(boards_dir: Path) -> None:
    (boards_dir / "bad.yaml").write_text(PROFILE.replace("name: pi", "name: bad\naddres: x"))
    entry = {entry.name: entry for entry in list_boards([boards_dir])}["bad"]
    assert entry.profile is None
    assert entry.problem == f"{entry.path}:3: 'addres' is not a key here; did you mean 'address'?"


def test_unknown_boards_and_folders(tmp_path: Path, boards_dir: Path) -> None:
    assert problem("locl") == (
        "UnknownNameError: no board named 'locl' | did you mean 'local'?; or give ssh://user@host:port"
    )
    assert problem("pii", [boards_dir]).startswith(
        "UnknownNameError: no board named 'pii' | did you mean 'pi'?"
    )
    assert "is not a folder of board profiles" in problem("local", [tmp_path / "none"])


def test_extending_a_board_merges_ssh_agent_and_platforms(boards_dir: Path) -> None:
    (boards_dir / "pi4.yaml").write_text(
        "format: edgeplace/board@1\n"
        "name: pi4\n"
        "address: ssh://edge@pi4.lan\n"
        "extends: pi\n"
        "platforms:\n"
        "  cpu: {options: {threads: 3}}\n"
        "  tpu: {kind: edgetpu, loader: interpreter, library: libedgetpu.so.1}\n"
    )
    board = load_board("pi4", [boards_dir])
    assert board.title == ""
    assert board.platforms["cpu"].options == {"threads": 3}
    assert board.platforms["cpu"].loader == "interpreter"
    assert list(board.platforms) == ["cpu", "tpu"]


def test_a_platform_that_says_its_kind_replaces_the_one_taken_over(boards_dir: Path) -> None:
    text = (ROOT / "docs" / "adding-a-board.md").read_text()
    (boards_dir / "imx8mp.yaml").write_text(text.split("```yaml\n")[1].split("```")[0])
    board = load_board("imx8mp", [boards_dir])
    assert set(board.platforms) == {"cpu", "cpu1", "cpu_ref", "gpu", "npu"}
    assert board.platforms["cpu"].options == {"kernels": "xnnpack", "threads": 3}
    assert board.platforms["npu"].loader == "interpreter"
    assert board.platforms["npu"].options == {"threads": 1}


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        ("extends: nowhere", 4, "extends 'nowhere', and there is no such board"),
        ("extends: local", 4, "extends 'local', which extends another board itself; one level only"),
        ("extends: [a]", 4, "extends: expected text, not a list"),
        ("address: box", 4, "address: 'box' is not an address"),
        ("address: ssh://a:b@box", 4, "address: an address carries no password"),
        ("ssh: {password: x}", 4, "'password' is not a key of ssh; known: identity_file, known_hosts, port, user"),
        ("ssh: {port: 70000}", 4, "ssh.port: input should be less than or equal to 65535"),
        ("platforms: {}", 4, "platforms: there is none"),
        ("platforms: {'a b': {kind: cpu, loader: interpreter}}", 4, "'a b' is not a name"),
        ("platforms: {x: {kind: delegate, loader: interpreter}}", 4, "kind 'delegate' needs 'library'"),
        ("platforms: {x: {kind: tpu, loader: interpreter}}", 4, "'tpu' is not one of 'cpu', 'gpu', 'npu'"),
        ("platforms: {x: {kind: gpu, loader: compiled_model, runtime: tflite}}", 4, "part of runtime 'litert'"),
        ("platforms: {x: {kind: edgetpu, loader: compiled_model}}", 4, "runs cpu, gpu and npu, not edgetpu"),
        ("platforms: {x: {kind: gpu, loader: compiled_model, library: a}}", 4, "takes no external delegate"),
        ("platforms: {x: {kind: cpu, loader: interpreter, library_options: {a: 1}}}", 4, "and none is given"),
        ("platforms: {x: {kind: cpu, loader: interpreter, options: {treads: 1}}}", 4, "did you mean 'threads'?"),
        ("platforms: {x: {kind: cpu, loader: interpreter, options: {threads: 0}}}", 4, "a whole number from 1"),
        ("platforms: {x: {kind: cpu, loader: interpreter, options: {threads: true}}}", 4, "a whole number from 1"),
        ("platforms: {x: {kind: cpu, loader: interpreter, options: {threads: 1025}}}", 4, "from 1 to 1024"),
        ("platforms: {x: {kind: cpu, loader: interpreter, options: {kernels: fast}}}", 4, "is one of xnnpack"),
        ("platforms: {x: {kind: npu, loader: compiled_model, options: {fallback: 1}}}", 4, "is true or false, not"),
        ("platforms: {x: {kind: npu, loader: compiled_model, options: {openvino_libs: 1}}}", 4, "is text, not '1'"),
    ],
)  # fmt: skip
def test_mistakes_in_a_profile_name_file_and_line(tmp_path: Path, change: str, line: int, words: str) -> None:
    text = "format: edgeplace/board@1\nname: x\ntitle: X\n" + change + "\n"
    if "platforms" not in change:
        text += "platforms: {cpu: {kind: cpu, loader: interpreter}}\n"
    path = tmp_path / "x.yaml"
    path.write_text(text)
    found = problem("x", [tmp_path])
    assert found.startswith(f"ProfileError: {path}:{line}: ")
    assert words in found


def test_the_name_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(PROFILE)
    assert f"{tmp_path}/other.yaml:2: the name is 'pi', but the file is called" in problem(
        "other", [tmp_path]
    )


def test_a_profile_without_an_address_cannot_be_used_as_it_is() -> None:
    assert "board linux has no address" in problem("linux")
    assert load_board("linux", overrides=["address=ssh://edge@box"]).address == "ssh://edge@box"


def test_set_changes_values() -> None:
    board = load_board(
        "local",
        overrides=[
            "platforms.cpu.options.threads=2",
            "platforms.gpu.env.VK_DRIVER_FILES=/usr/share/vulkan/x.json",
            "platforms.gpu.notes=",
            "agent.root=/tmp/edge place",
            "platforms.npu.preload=[a.so, b.so]",
        ],
    )
    assert board.platforms["cpu"].options == {"kernels": "xnnpack", "threads": 2}
    assert board.platforms["gpu"].env == {"VK_DRIVER_FILES": "/usr/share/vulkan/x.json"}
    assert board.platforms["gpu"].notes == ""
    assert board.agent.root == "/tmp/edge place"
    assert board.platforms["npu"].preload == ("a.so", "b.so")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("threads", "InputError: --set threads: is not path.to.value=value | --set platforms."),
        ("platforms..threads=2", "InputError: --set platforms..threads=2: is not path.to.value=value"),
        (
            "platforms.cup.options.threads=2",
            "UnknownNameError: board local has no platform named 'cup' | did you mean 'cpu'?",
        ),
        (
            "platforms.cpu.optons.threads=2",
            "ProfileError: --set platforms.cpu.optons.threads=2: 'optons' is not a key of platforms.cpu; "
            "did you mean 'options'?",
        ),
        (
            "platforms.cpu.options.threads=two",
            "ProfileError: --set platforms.cpu.options.threads=two: platforms.cpu: option 'threads' is a whole",
        ),
        ("nme=x", "ProfileError: --set nme=x: 'nme' is not a key here; did you mean 'name'?"),
        ("title=[", "ProfileError: --set title=[:1: is not valid YAML"),
    ],
)
def test_set_refuses(text: str, expected: str) -> None:
    assert problem("local", overrides=[text]).startswith(expected)


def test_platform_names_choose() -> None:
    assert list(load_board("local", platforms=["npu", "cpu"]).platforms) == ["npu", "cpu"]


def test_platform_adds_an_external_delegate() -> None:
    board = load_board("local", platforms=["my=delegate:/opt/lib.so,cores=2,fast=true,path=/a=b"])
    assert list(board.platforms) == ["cpu", "cpu1", "cpu_ref", "gpu", "npu", "my"]
    assert platform_spec("my", board.platforms["my"]) == {
        "name": "my",
        "kind": "delegate",
        "loader": "interpreter",
        "runtime": "",
        "options": {},
        "library": "/opt/lib.so",
        "library_options": {"cores": "2", "fast": "true", "path": "/a=b"},
        "env": {},
        "preload": [],
    }


def test_the_c_library_may_be_found_by_itself() -> None:
    board = load_board("local", platforms=["c=tflite_c:,xnnpack=false"])
    assert board.platforms["c"].library == ""
    assert board.platforms["c"].options == {"xnnpack": False}


def test_platform_adds_and_chooses_at_once() -> None:
    board = load_board(
        "local", platforms=["cpu", "c=tflite_c:/opt/libtflite.so,threads=1", "cpu3=cpu,threads=3"]
    )
    assert list(board.platforms) == ["cpu", "c", "cpu3"]
    assert board.platforms["c"] == PlatformProfile(
        kind="cpu", loader="tflite_c", library="/opt/libtflite.so", options={"threads": 1}
    )
    assert board.platforms["cpu3"].options == {"kernels": "xnnpack", "threads": 3}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cup", "UnknownNameError: board local has no platform named 'cup' | did you mean 'cpu'?"),
        ("my=delegte:/x.so", "UnknownNameError: --platform my=delegte:/x.so: 'delegte' is no form of a platform | did"),
        ("my=delegate:", "InputError: --platform my=delegate:: the path of the library is missing after"),
        ("my=/opt/lib.so", "UnknownNameError: --platform my=/opt/lib.so: board local has no platform named '/opt"),
        ("my=cup", "UnknownNameError: --platform my=cup: board local has no platform named 'cup' to start from"),
        ("m y=delegate:/x.so", "InputError: --platform m y=delegate:/x.so: 'm y' is not a name"),
        ("my=delegate:/x.so,a", "InputError: --platform my=delegate:/x.so,a: 'a' is not key=value"),
        ("my=delegate:/x.so,a=1,a=2", "InputError: --platform my=delegate:/x.so,a=1,a=2: 'a' is given twice"),
        ("my=cpu,treads=2", "ProfileError: --platform my=cpu,treads=2: 'treads' is not an option of interpreter; did"),
    ],
)  # fmt: skip
def test_platform_refuses(text: str, expected: str) -> None:
    assert problem("local", platforms=[text]).startswith(expected)


def test_a_platform_survives_the_wire() -> None:
    board = load_board("local", platforms=["my=delegate:/opt/lib.so,a=1"])
    for name, platform in board.platforms.items():
        wire = platform_spec(name, platform, 2)
        assert platform_spec(name, spec_from_wire(wire)) == wire


def test_a_platform_that_is_not_there_by_name() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_board("local").platform("gqu")
    assert caught.value.hint == "did you mean 'gpu'?"
    with pytest.raises(ProfileError, match="'colour' is not a key here"):
        spec_from_wire({"name": "x", "kind": "cpu", "loader": "interpreter", "colour": "red"})
