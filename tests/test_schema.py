"""YAML at the door: right values, and for every kind of mistake the file and the line."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeplace.errors import ProfileError
from edgeplace.schema import (
    Field,
    FrozenModel,
    NodeRanges,
    Scalar,
    ShortFloat,
    dump_model,
    dump_value,
    json_schema,
    load_model,
    node_ranges,
    parse_model,
    read_document,
    validate_value,
)
from edgeplace.schema.document import MAX_DEPTH, MAX_FILE_BYTES


class Part(FrozenModel):
    """A nested model."""

    kind: Literal["cpu", "gpu", "npu"]
    library: str = ""
    options: dict[str, Scalar] = Field(default_factory=dict)


class File(FrozenModel):
    """A file's model."""

    format: Literal["toy@1"]
    parts: dict[str, Part] = Field(default_factory=dict)
    chain: tuple[Part, ...] = ()
    nodes: NodeRanges = ()
    time_ms: ShortFloat = 0.0
    one: Part | None = None
    flag: bool = False


def parse(text: str) -> File:
    return parse_model(File, text, "toy.yaml")


def problems(text: str) -> list[str]:
    """Everything that is wrong with ``text``, one message per entry."""
    with pytest.raises(ProfileError) as caught:
        parse(text)
    return str(caught.value).splitlines()


def test_reads_values_and_remembers_lines() -> None:
    file = parse(
        "format: toy@1\n"
        "parts:\n"
        "  cpu: {kind: cpu, options: {threads: 4, fast: true, name: no, share: 0.5}}\n"
        "nodes: [0-3, 7]\n"
        "time_ms: 1.23456789\n"
        "one:\n"
        "  kind: npu\n"
    )
    assert file.parts["cpu"].options == {"threads": 4, "fast": True, "name": "no", "share": 0.5}
    assert file.nodes == (0, 1, 2, 3, 7)
    assert file.time_ms == 1.23457
    assert file.where("parts", "cpu") == "toy.yaml:3"
    assert file.where("one", "kind") == "toy.yaml:7"
    assert file.where("one", "library") == "toy.yaml:6"


def test_a_model_is_frozen_and_equal_by_its_fields() -> None:
    file = parse("format: toy@1\n")
    with pytest.raises(ValueError, match="frozen"):
        file.flag = True  # type: ignore[misc]
    assert file == File(format="toy@1")
    assert file != File(format="toy@1", flag=True)
    assert File(format="toy@1").where("flag") == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("format: toy@2\n", ["toy.yaml:1: format: expected 'toy@1', not 'toy@2'"]),
        ("flag: true\n", ["toy.yaml:1: format is missing"]),
        (
            "format: toy@1\n\nparts:\n  npu:\n    kind: npu\n    libary: x.so\n",
            ["toy.yaml:6: 'libary' is not a key of parts.npu; did you mean 'library'?"],
        ),
        (
            "format: toy@1\nflga: true\n",
            ["toy.yaml:2: 'flga' is not a key here; did you mean 'flag'?"],
        ),
        (
            "format: toy@1\nchain:\n- kind: cpu\n- kind: gpuu\n",
            ["toy.yaml:4: chain[1].kind: 'gpuu' is not one of 'cpu', 'gpu', 'npu'; did you mean 'gpu'?"],
        ),
        (
            "format: toy@1\nchain:\n- {kind: cpu, optoins: {}}\n",
            ["toy.yaml:3: 'optoins' is not a key of chain[0]; did you mean 'options'?"],
        ),
        (
            "format: toy@1\none: {kid: cpu}\n",
            [
                "toy.yaml:2: one.kind is missing",
                "toy.yaml:2: 'kid' is not a key of one; did you mean 'kind'?",
            ],
        ),
        ("format: toy@1\nflag: yes\n", ["toy.yaml:2: flag: expected true or false, not 'yes'"]),
        ("format: toy@1\ntime_ms: fast\n", ["toy.yaml:2: time_ms: expected a number, not 'fast'"]),
        ("format: toy@1\nchain: 3\n", ["toy.yaml:2: chain: expected a list, not 3"]),
        ("format: toy@1\none: [cpu]\n", ["toy.yaml:2: one: expected a mapping of keys to values, not a list"]),
        (
            "format: toy@1\none:\n  kind: cpu\n  library: 12\n",
            ["toy.yaml:4: one.library: expected text, not 12; put it in quotes"],
        ),
        (
            "format: toy@1\none:\n  kind: cpu\n  options:\n    a: [1]\n",
            ["toy.yaml:5: one.options.a: expected true or false, a whole number, a number or text, not a list"],
        ),
        ("- 1\n", ["toy.yaml:1: the file: expected a mapping of keys to values, not a list"]),
        ("format: toy@1\nnodes: [7-3]\n", ["toy.yaml:2: nodes: '7-3' counts backwards"]),
        (
            "format: toy@1\nnodes: [a]\n",
            ["toy.yaml:2: nodes: 'a' is neither a node number nor a range like 3-7"],
        ),
        ("format: toy@1\nnodes: [0-999999999]\n", ["toy.yaml:2: nodes: node 999999999 is beyond 1000000"]),
        (
            "format: toy@1\nnodes: [0-900000, 0-900000]\n",
            ["toy.yaml:2: nodes: names more than 1000000 nodes"],
        ),
        (
            "format: toy@1\nflag: true\n\nflag: false\n",
            ["toy.yaml:4: 'flag' is repeated; it first stands on line 2"],
        ),
        ("format: toy@1\n? [a]\n: 1\n", ["toy.yaml:2: a key must be a word"]),
        ("format: toy@1\n<<: {flag: true}\n", ["toy.yaml:2: '<<' is not a key here; known: "]),
    ],
)  # fmt: skip
def test_each_mistake_names_its_line(text: str, expected: list[str]) -> None:
    found = problems(text)
    assert len(found) == len(expected)
    for line, wanted in zip(found, expected, strict=True):
        assert line.startswith(wanted)


def test_all_problems_of_a_file_are_told_together_in_order() -> None:
    found = problems(
        "format: toy@1\n"
        "parts:\n"
        "  a: {kind: cpuu}\n"
        "  b:\n"
        "    kind: gpu\n"
        "    kind: npu\n"
        "flag: !!bool true\n"
        "nods: [1]\n"
    )
    assert [line.split(": ")[0] for line in found] == [f"toy.yaml:{n}" for n in (3, 6, 7, 8)]


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [id]", "!local x", "!!str 1", "! x"])
def test_tags_are_refused(tag: str) -> None:
    (line,) = [line for line in problems(f"format: toy@1\none: {tag}\n") if "tags" in line]
    assert line.startswith("toy.yaml:2: YAML tags are not allowed (")


def test_an_alias_is_what_it_stands_for() -> None:
    file = parse("format: toy@1\nchain:\n- &a {kind: cpu}\n- *a\n")
    assert file.chain == (Part(kind="cpu"), Part(kind="cpu"))


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (line,) = problems("\n".join(lines))
    assert "holds more than 200000 values" in line


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: &a [*a]\n", 1, f"nested deeper than {MAX_DEPTH} levels"),
        ("\na: " + "[" * 50_000, 2, f"nested deeper than {MAX_DEPTH} levels"),
        ("\n".join(" " * n + "a:" for n in range(60)), MAX_DEPTH, "nested deeper"),
        ("a:\n\tb: 1\n", 2, "not valid YAML"),
        ("a: 1\nb: c: d\n", 2, "mapping values are not allowed here"),
        ("a: [1,\nb: 2\n", 3, "not valid YAML"),
        ("a: *nowhere\n", 1, "undefined alias"),
        ("a: 1\n---\nb: 1\n", 2, "single document"),
        ("a: 1\nb: \x07\n", 2, "character that YAML does not allow"),
    ],
)
def test_what_is_not_yaml_or_goes_too_deep_names_the_line(text: str, line: int, words: str) -> None:
    (found,) = problems(text)
    assert found.startswith(f"toy.yaml:{line}: ")
    assert words in found


def test_tabs_get_a_hint() -> None:
    with pytest.raises(ProfileError) as caught:
        parse("a:\n\tb: 1\n")
    assert caught.value.hint == "indent with spaces, not tabs"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    def error(data: bytes) -> str:
        path = tmp_path / "toy.yaml"
        path.write_bytes(data)
        with pytest.raises(ProfileError) as caught:
            load_model(File, path)
        return str(caught.value).removeprefix(str(path))

    assert error(b"") == ": is empty"
    assert error(b"# nothing\n") == ": is empty"
    assert error(b"format: toy@1\n\xff\n") == ":2: is not UTF-8 text"
    assert error(b"#" * (MAX_FILE_BYTES + 1)) == ": is larger than 4 MiB"
    with pytest.raises(ProfileError, match="cannot be read: No such file"):
        load_model(File, tmp_path / "none.yaml")
    with pytest.raises(ProfileError, match="cannot be read: Is a directory"):
        load_model(File, tmp_path)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_bytes(b"\xef\xbb\xbfformat: toy@1\n")
    assert load_model(File, tmp_path / "toy.yaml") == File(format="toy@1")


def test_values_from_a_command_line_carry_their_source() -> None:
    with pytest.raises(ProfileError) as caught:
        validate_value(File, {"format": "toy@1", "flga": True}, "--set flga=true")
    assert str(caught.value) == "--set flga=true: 'flga' is not a key here; did you mean 'flag'?"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None), ("null", None), ("", None), ("true", True), ("False", False), ("yes", "yes"), ("off", "off"),
        ("12", 12), ("-3", -3), ("0x1f", 31), ("0o17", 15), ("017", 17), ("1.5", 1.5), ("1e3", 1000.0),
        ("-1.5e-3", -0.0015), (".5", 0.5), (".inf", math.inf), ("-.inf", -math.inf), ("1:30", "1:30"),
        ("2024-01-02", "2024-01-02"), ("0-41", "0-41"), ("9" * 40, int("9" * 40)), ("9" * 1001, "9" * 1001), ("'1'", "1"), ('"true"', "true"),
        ("1_000", "1_000"), ("e5", "e5"),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    read = read_document(f"a: {text}\n", "x").value
    assert read == {"a": value}
    assert type(read["a"]) is type(value)  # type: ignore[index,call-overload]


def test_canonical_text() -> None:
    file = File(
        format="toy@1",
        parts={
            "cpu": Part(kind="cpu", options={"threads": 4, "share": 1e-05}),
            "npu": Part(
                kind="npu", library="/usr/lib/a very long folder name/" + "x" * 60 + ".so", options={"a": "1"}
            ),
        },
        chain=(Part(kind="gpu"),),
        nodes=(0, 1, 2, 3, 7, 8, 10),
        time_ms=0.4123456,
        flag=True,
    )
    text = dump_model(file, comment="First line.\n\nThird line.")
    assert text == (
        "# First line.\n"
        "#\n"
        "# Third line.\n"
        "format: toy@1\n"
        "parts:\n"
        "  cpu: {kind: cpu, options: {threads: 4, share: 1.0e-05}}\n"
        "  npu:\n"
        "    kind: npu\n"
        f"    library: /usr/lib/a very long folder name/{'x' * 60}.so\n"
        '    options: {a: "1"}\n'
        "chain:\n"
        "  - {kind: gpu}\n"
        "nodes: [0-3, 7, 8, 10]\n"
        "time_ms: 0.412346\n"
        "flag: true\n"
    )
    assert parse(text) == file


def test_long_lists_are_wrapped() -> None:
    text = dump_value({"nodes": list(range(0, 200, 2)), "text": ["a" * 70, "b" * 70]})
    assert max(len(line) for line in text.splitlines()) <= 110
    assert yaml.safe_load(text) == {"nodes": list(range(0, 200, 2)), "text": ["a" * 70, "b" * 70]}


def test_node_ranges() -> None:
    assert node_ranges([]) == []
    assert node_ranges([3]) == [3]
    assert node_ranges([0, 1, 2, 4, 5, 9]) == ["0-2", 4, 5, 9]


def test_only_yaml_values_are_written() -> None:
    with pytest.raises(TypeError, match="set has no YAML form"):
        dump_value({"a": {1, 2}})
    with pytest.raises(TypeError, match="a key must be text, not int"):
        dump_value({"a": {1: 2}})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1), inner, max_size=4),
    max_leaves=12,
)


def tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: tuples(item) for key, item in value.items()}
    return tuple(tuples(item) for item in value) if isinstance(value, list) else value


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.dictionaries(st.text(min_size=1), VALUES, max_size=4))
def test_what_is_written_is_read_back_by_us_and_by_any_yaml_reader(value: dict[str, Any]) -> None:
    text = dump_value(value)
    assert read_document(text, "x").value == tuples(value)
    assert yaml.safe_load(text) == value


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.text(alphabet="ab:-[]{}#&*!|>'\"% \n\t,?0", max_size=40))
def test_any_text_is_read_or_refused_with_an_explained_error(text: str) -> None:
    with contextlib.suppress(ProfileError):
        read_document(text, "x")


def test_json_schema_takes_what_the_model_takes() -> None:
    schema = json_schema(File)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"format": "toy@1", "nodes": [1, "3-7"], "one": {"kind": "cpu"}}, schema)
    for bad in ({"format": "toy@1", "flga": 1}, {"format": "toy@1", "nodes": ["x"]}, {"flag": True}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)
