"""Values come back from their text exactly as they were."""

from __future__ import annotations

import math
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeplace.measure.measurement import FAILURE_KINDS, Agreement, Failure, Measurement, Timing
from edgeplace.store.records import (
    failure_from_json,
    failure_to_json,
    measurement_from_json,
    measurement_to_json,
    session_key,
)

FLOATS = st.floats(allow_nan=False)
TIMES = st.lists(st.floats(min_value=0, allow_nan=False), max_size=5).map(tuple)
TIMINGS = st.builds(
    Timing,
    times_ms=TIMES,
    p50_ms=FLOATS,
    ci95_ms=st.tuples(FLOATS, FLOATS),
    min_ms=FLOATS,
    p90_ms=FLOATS,
    p99_ms=FLOATS,
    segment_ms=TIMES,
    handover_ms=TIMES,
    prepare_ms=TIMES,
    first_run_ms=FLOATS,
    noisy=st.booleans(),
)
FAILURES = st.builds(
    Failure,
    kind=st.sampled_from(FAILURE_KINDS),
    message=st.text(),
    stage=st.sampled_from(["", "prepare"]),
    segment=st.none() | st.integers(0, 9),
    platform=st.none() | st.text(),
    code=st.none() | st.integers(-64, 255),
)
AGREEMENTS = st.builds(
    Agreement,
    max_abs=FLOATS,
    cosine=FLOATS,
    snr_db=FLOATS,
    psnr_db=FLOATS,
    steps=st.none() | FLOATS,
    equal_share=st.none() | FLOATS,
    has_nan=st.booleans(),
    degenerate=st.booleans(),
    metric=st.none() | FLOATS,
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(), lambda inner: st.lists(inner, max_size=3)
)
HEALTH = st.dictionaries(st.text(), JSON_VALUES, max_size=3)


@given(result=TIMINGS | FAILURES, agreement=st.none() | AGREEMENTS, health=HEALTH, simulated=st.booleans())
@settings(derandomize=True, deadline=None, max_examples=150)
def test_a_measurement_comes_back_equal(result, agreement, health, simulated):
    measurement = Measurement(
        "placement",
        "plan",
        timing=result if isinstance(result, Timing) else None,
        failure=result if isinstance(result, Failure) else None,
        agreement=agreement,
        health=health,
        simulated=simulated,
    )
    assert measurement_from_json(measurement_to_json(measurement)) == measurement


def test_nan_and_infinity_survive():
    agreement = Agreement(math.nan, 1.0, math.inf, -math.inf)
    back = measurement_from_json(
        measurement_to_json(Measurement("a", "b", failure=Failure("timeout", "t"), agreement=agreement))
    )
    assert back.agreement is not None
    assert math.isnan(back.agreement.max_abs)
    assert (back.agreement.snr_db, back.agreement.psnr_db) == (math.inf, -math.inf)


def test_a_failure_comes_back_equal():
    failure = Failure("crashed", "died", "prepare", 3, "npu", 11)
    assert failure_from_json(failure_to_json(failure)) == failure


def test_read_only_mappings_can_be_written():
    health = MappingProxyType({"before": MappingProxyType({"governor": "performance"})})
    measurement = Measurement("a", "b", failure=Failure("timeout", "t"), health=health)
    assert measurement_from_json(measurement_to_json(measurement)).health == {
        "before": {"governor": "performance"}
    }


@pytest.mark.parametrize(
    "health", [{"x": object()}, {1: 2}, {"x": {2: 3}}], ids=["object", "key", "inner key"]
)
def test_what_is_no_json_value_is_refused_when_written(health):
    with pytest.raises(ValueError, match="not a JSON value"):
        measurement_to_json(Measurement("a", "b", failure=Failure("timeout", "t"), health=health))


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"placement_id": "a"}', '{"placement_id": "a", "plan_id": "b"}', '{"other": 1}',
     '{"placement_id": "a", "plan_id": "b", "failure": {"kind": "tired", "message": ""}}',
     '{"placement_id": "a", "plan_id": "b", "timing": [1]}'],
)  # fmt: skip
def test_text_that_is_no_measurement_is_refused(text):
    with pytest.raises(ValueError):
        measurement_from_json(text)


def test_the_session_key_does_not_depend_on_the_order_of_facts():
    assert session_key({"a": 1, "b": [1, 2]}) == session_key({"b": (1, 2), "a": 1})
    assert session_key({"a": 1}) != session_key({"a": 2})
