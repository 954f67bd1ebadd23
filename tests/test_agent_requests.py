"""A request is what it must be or is refused with the field's name: nothing else of it is ever used."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from device_agents.protocol import RequestError
from device_agents.requests import (
    DEFAULT_DEADLINE_S,
    constants_of,
    deadlines_s,
    environment_of,
    hashes_of,
    job_blobs,
)

A, B, C, D = (letter * 64 for letter in "abcd")
CPU = {"name": "cpu", "loader": "interpreter", "env": {"OMP_NUM_THREADS": "1"}}
ARRAY = {"blob": C, "dtype": "float32", "shape": [1, 2]}
PLAN = {
    "segments": [
        {"platform": "cpu", "model": A, "inputs": [["input", 0]], "outputs": 2},
        {
            "platform": "cpu",
            "model": B,
            "inputs": [["segment", 0, 1], ["constant", D, "int8", [4]]],
            "outputs": 1,
        },
    ],
    "outputs": [["segment", 1, 0], ["input", 0]],
    "platforms": {"cpu": CPU},
}
VALID: dict[str, dict[str, Any]] = {
    "probe": {"verb": "probe", "platform": CPU, "model": A, "inputs": [None, ARRAY]},
    "try": {"verb": "try", "platform": CPU, "model": A, "inputs": []},
    "run": {"verb": "run", "plan": PLAN, "inputs": [[ARRAY], [ARRAY]]},
    "measure": {"verb": "measure", "plan": PLAN, "inputs": [[ARRAY]], "timing": {}},
    "interleave": {"verb": "interleave", "plans": [PLAN, PLAN], "inputs": [[ARRAY]]},
    "shapes": {"verb": "shapes", "model": A, "input_shapes": {}},
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats()
    | st.sampled_from(["", "cpu", "input", A, "segment"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "blob"]), inner, max_size=2)
    ),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every position in a JSON value but the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(request: dict[str, Any], path: tuple[Any, ...], new: Any) -> dict[str, Any]:
    request = copy.deepcopy(request)
    target: Any = request
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = new
    return request


@pytest.mark.parametrize(
    ("verb", "blobs"),
    [
        ("probe", [A, C]),
        ("try", [A]),
        ("run", [C, A, B, D]),
        ("measure", [C, A, B, D]),
        ("interleave", [C, A, B, D]),
        ("shapes", [A]),
    ],
)
def test_every_blob_is_found_once(verb: str, blobs: list[str]) -> None:
    assert job_blobs(VALID[verb]) == blobs


@settings(derandomize=True, deadline=None, max_examples=400)
@given(data=st.data(), verb=st.sampled_from(sorted(VALID)), new=JSON)
def test_whatever_stands_in_a_field_it_is_taken_or_refused(data: st.DataObject, verb: str, new: Any) -> None:
    spots = [path for path in places(VALID[verb]) if path != ("verb",)]
    request = changed(VALID[verb], data.draw(st.sampled_from(spots)), new)
    try:
        blobs = job_blobs(request)
        environment_of(request)
        deadlines_s(request)
    except RequestError:
        return
    assert set(blobs) <= {A, B, C, D}


@pytest.mark.parametrize(
    ("path", "new", "words"),
    [
        (("plan", "segments", 0, "platform"), "npu", "platform 'npu' is not among"),
        (("plan", "segments", 0, "platform"), [], "is not among"),
        (("plan", "segments", 0, "inputs", 0), ["segment", 0, 0], "no output 0 of an earlier segment 0"),
        (("plan", "segments", 1, "inputs", 0), ["segment", 0, 2], "no output 2 of an earlier segment 0"),
        (("plan", "segments", 0, "inputs", 0), ["input", 1], "a sample has no input 1"),
        (("plan", "outputs", 0), ["segment", 2, 0], "no output 0 of an earlier segment 2"),
        (("plan", "outputs", 0), ["file", "/etc/passwd"], "is no source"),
        (("plan", "segments", 1, "inputs", 1, 3), [-1], "the shape"),
        (("inputs",), [], "no sample"),
        (("inputs", 0), [None], "is no array blob"),
    ],
)
def test_plans_that_cannot_run_are_refused_with_the_place(
    path: tuple[Any, ...], new: Any, words: str
) -> None:
    with pytest.raises(RequestError) as caught:
        job_blobs(changed(VALID["run"], path, new))
    assert words in caught.value.message


def test_fields_of_other_verbs_are_not_looked_at() -> None:
    request = {**VALID["shapes"], "platform": 7, "plan": 7, "plans": 7}
    assert job_blobs(request) == [A]
    assert environment_of(request) == {}


def test_deadlines_have_a_default_and_bounds() -> None:
    assert deadlines_s({}) == (DEFAULT_DEADLINE_S, None)
    assert deadlines_s({"deadline_s": 2, "stage_deadline_s": 0.5}) == (2.0, 0.5)
    for wrong in (0, -1, float("inf"), float("nan"), True, "3", 1e9):
        with pytest.raises(RequestError):
            deadlines_s({"stage_deadline_s": wrong})


@pytest.mark.parametrize("wrong", [None, {}, [A[:-1]], [7], "abc"])
def test_lists_of_hashes_are_checked(wrong: Any) -> None:
    with pytest.raises(RequestError):
        hashes_of({"hashes": wrong})


@pytest.mark.parametrize(
    "wrong", [None, [[A, 1]], [[A, -1, 2]], [[A, 0, True]], [["x", 0, 1]], ["abc"], [[A, 0.5, 1]]]
)
def test_recipes_are_checked(wrong: Any) -> None:
    with pytest.raises(RequestError):
        constants_of({"constants": wrong})
