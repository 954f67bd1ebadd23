"""Which kernels the reference comes from, and what its cached name depends on."""

from __future__ import annotations

from typing import Any

import pytest

from edgeplace.errors import NoFeasiblePlacementError
from edgeplace.measure.measurement import Failure
from edgeplace.measure.reference import (
    BUILTIN,
    REFERENCE,
    XNNPACK,
    Kernels,
    cache_key,
    next_reference,
)

UNRESOLVED = Failure("prepare_failed", "unresolved custom op: Convolution2DTransposeBias")


def test_reference_kernels_come_first_and_say_nothing() -> None:
    choice = next_reference({})
    assert (choice.kernels, choice.why_not) == (REFERENCE, "")
    assert choice.to_dict() == {"kernels": "reference", "threads": 1}


def test_model_they_cannot_run_uses_one_thread_xnnpack_and_says_why() -> None:
    choice = next_reference({REFERENCE: UNRESOLVED})
    assert choice.kernels == XNNPACK
    assert choice.to_dict() == {
        "kernels": "xnnpack",
        "threads": 1,
        "why_not": "reference: prepare_failed: unresolved custom op: Convolution2DTransposeBias",
    }


def test_builtin_kernels_failing_changes_nothing() -> None:
    assert next_reference({BUILTIN: UNRESOLVED}).to_dict() == {"kernels": "reference", "threads": 1}


def test_model_that_no_kernels_run_has_no_reference() -> None:
    failures = {REFERENCE: UNRESOLVED, XNNPACK: Failure("crashed", "SIGSEGV", code=11)}
    with pytest.raises(NoFeasiblePlacementError) as caught:
        next_reference(failures)
    assert "reference: prepare_failed" in str(caught.value)
    assert "xnnpack: crashed(11): SIGSEGV" in str(caught.value)
    assert caught.value.hint


KEY: dict[str, Any] = {
    "model_sha256": "a" * 64,
    "inputs_sha256": "b" * 64,
    "kernels": REFERENCE,
    "runtime_version": "ai-edge-litert 2.3.0",
    "machine": "x86_64",
}


def test_cached_name_is_stable() -> None:
    assert cache_key(**KEY) == cache_key(**KEY)
    assert len(cache_key(**KEY)) == 64


@pytest.mark.parametrize(
    "other",
    [
        {"model_sha256": "c" * 64},
        {"inputs_sha256": "c" * 64},
        {"kernels": XNNPACK},
        {"kernels": Kernels("reference", threads=2)},
        {"runtime_version": "ai-edge-litert 2.4.0"},
        {"machine": "aarch64"},
        {"compare_at": ["boxes"]},
    ],
)
def test_cached_name_depends_on_everything_the_numbers_depend_on(other: dict[str, Any]) -> None:
    assert cache_key(**{**KEY, **other}) != cache_key(**KEY)


def test_order_of_compared_tensors_counts() -> None:
    assert cache_key(**KEY, compare_at=["a", "b"]) != cache_key(**KEY, compare_at=["b", "a"])


def test_kernels_say_their_threads() -> None:
    assert str(XNNPACK) == "xnnpack"
    assert str(Kernels("xnnpack", threads=2)) == "xnnpack with 2 threads"
