"""Numeric agreement, floors, limits and the gate, against values worked out by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgeplace.measure.agreement import (
    EXACT,
    LOWEST_SNR_DB,
    Array,
    Floor,
    Gate,
    Limit,
    compare,
    compare_output,
    dequantize,
    mismatch,
    usual_peaks,
    worst,
)
from edgeplace.measure.measurement import Agreement
from edgeplace.tflite.model import Quantization

SCALE = Quantization(scales=(0.5,), zero_points=(10,))


def f32(*values: float) -> Array:
    return np.array(values, dtype=np.float32)


def i8(*values: int) -> Array:
    return np.array(values, dtype=np.int8)


def test_float_output_by_hand() -> None:
    """Signal energy 3^2 + 4^2 = 25, error (0, 1): energy 1; the other's energy 3^2 + 5^2 = 34; dot 29."""
    found = compare([f32(3, 4)], [f32(3, 5)], [None])
    assert found.max_abs == 1
    assert found.cosine == pytest.approx(29 / math.sqrt(25 * 34))
    assert found.snr_db == pytest.approx(10 * math.log10(25))
    assert found.psnr_db == pytest.approx(10 * math.log10(4**2 * 2 / 1))
    assert (found.steps, found.equal_share, found.has_nan, found.degenerate) == (None, None, False, False)


def test_quantized_output_is_compared_on_real_values() -> None:
    """0.5 * (q - 10): reference (1, 2), got (1, 3)."""
    found = compare([i8(12, 14)], [i8(12, 16)], [SCALE])
    assert found.max_abs == 1
    assert found.steps == 2
    assert found.snr_db == pytest.approx(10 * math.log10(5))
    assert found.equal_share is None


def test_steps_do_not_wrap_around() -> None:
    assert compare([i8(127)], [i8(-128)], [SCALE]).steps == 255


def test_quantization_along_an_axis() -> None:
    quantization = Quantization(scales=(1.0, 10.0), zero_points=(0, 1), axis=1)
    assert dequantize(i8(1, 2, 3, 4).reshape(2, 2), quantization).tolist() == [[1, 10], [3, 30]]
    one_zero_point = Quantization(scales=(1.0, 10.0), zero_points=(0,), axis=0)
    assert dequantize(i8(1, 2, 3, 4).reshape(2, 2), one_zero_point).tolist() == [[1, 2], [30, 40]]


def test_equal_outputs_are_exact() -> None:
    found = compare([f32(1, 2), i8(3)], [f32(1, 2), i8(3)], [None, SCALE])
    assert (found.max_abs, found.cosine, found.snr_db, found.psnr_db, found.steps) == (
        0,
        1,
        math.inf,
        math.inf,
        0,
    )


def test_complex_output_is_compared_by_magnitude() -> None:
    found = compare([np.array([3 + 4j], np.complex64)], [np.array([3 + 3j], np.complex64)], [None])
    assert found.max_abs == pytest.approx(1)
    assert found.snr_db == pytest.approx(10 * math.log10(25))


@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e200])
def test_very_large_and_very_small_values_do_not_overflow(factor: float) -> None:
    found = compare_output(np.array([3.0, 4.0]) * factor, np.array([3.0, 5.0]) * factor)
    assert found.snr_db == pytest.approx(10 * math.log10(25))
    assert found.cosine == pytest.approx(29 / math.sqrt(25 * 34))


def test_class_numbers_and_bools_have_an_equal_share_alone() -> None:
    classes = np.array([1, 2, 3, 4], dtype=np.int32)
    found = compare([classes], [np.array([1, 2, 3, 400], dtype=np.int32)], [None])
    assert (found.equal_share, found.max_abs, found.cosine, found.snr_db) == (0.75, 0, 1, math.inf)
    flags = np.array([True, False])
    assert compare([flags], [np.array([True, True])], [None]).equal_share == 0.5


def test_strings_are_equal_or_not_however_they_are_held() -> None:
    objects = np.array([b"yes", b"no"], dtype=object)
    assert compare([objects], [np.array([b"yes", b"on"])], [None]).equal_share == 0.5
    assert compare([objects], [np.array(["yes", "no"])], [None]).equal_share == 1


def test_over_the_outputs_the_worst_counts() -> None:
    found = compare([f32(1), f32(1), np.array([5])], [f32(1.1), f32(1.5), np.array([6])], [None, None, None])
    assert found.max_abs == pytest.approx(0.5)
    assert found.snr_db == pytest.approx(10 * math.log10(1 / 0.25))
    assert found.equal_share == 0


@pytest.mark.parametrize("shape", [(0,), (1, 0, 4)])
def test_output_without_elements_agrees(shape: tuple[int, ...]) -> None:
    assert compare([np.zeros(shape, np.float32)], [np.zeros(shape, np.float32)], [None]) == EXACT


def test_scalar_output() -> None:
    found = compare([np.array(2.0, np.float32)], [np.array(1.0, np.float32)], [None])
    assert (found.max_abs, found.cosine) == (1, 1)
    assert found.snr_db == pytest.approx(10 * math.log10(4))


def test_all_zero_reference_has_no_signal_to_relate_an_error_to() -> None:
    assert compare([f32(0, 0)], [f32(0, 0)], [None]).snr_db == math.inf
    found = compare([f32(0, 0)], [f32(0, 1)], [None])
    assert (found.max_abs, found.cosine, found.snr_db) == (1, 0, -math.inf)


def test_all_zero_answer_to_a_signal() -> None:
    found = compare([f32(3, 4)], [f32(0, 0)], [None])
    assert (found.cosine, found.snr_db) == (0, 0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_found(bad: float) -> None:
    found = compare([f32(1, 2)], [f32(1, bad)], [None])
    assert found.has_nan
    assert found.snr_db == math.inf  # of the rest
    assert not Gate(Limit()).check(found).passed


def test_infinite_mask_in_both_is_no_error() -> None:
    found = compare([f32(1, -math.inf, math.nan)], [f32(2, -math.inf, math.nan)], [None])
    assert not found.has_nan
    assert found.max_abs == 1
    assert compare([f32(math.inf)], [f32(-math.inf)], [None]).has_nan


@pytest.mark.parametrize(
    ("got", "text"),
    [
        ([], "0 outputs where the reference has 1"),
        ([f32(1, 2, 3)], "output 0 has shape [3], the reference [2]"),
        ([f32(1, 2).reshape(1, 2)], "output 0 has shape [1, 2], the reference [2]"),
        ([i8(1, 2)], "output 0 has type int8, the reference float32"),
    ],
)
def test_outputs_that_cannot_be_compared_are_wrong(got: list[Array], text: str) -> None:
    assert mismatch([f32(1, 2)], got) == text
    found = compare([f32(1, 2)], got, [None])
    assert found.max_abs == math.inf
    passed, reason = Gate(Limit(cosine=None, snr_db=None)).check(found)
    assert not passed
    assert "shape or type" in reason


def test_lists_that_do_not_belong_together_are_a_mistake_in_the_code() -> None:
    with pytest.raises(ValueError, match="1 outputs with 2 quantizations"):
        compare([f32(1)], [f32(1)], [None, None])
    with pytest.raises(ValueError, match="1 outputs with 0 usual peaks"):
        compare([f32(1)], [f32(1)], [None], usual_peaks=[])


def test_degenerate_output_is_reported_and_not_gated() -> None:
    """A usual peak of 1; this reference peaks at 5e-4, so an error of 2e-4 (8 dB) says nothing."""
    found = compare([f32(5e-4), f32(1)], [f32(3e-4), f32(1)], [None, None], usual_peaks=[1, 1])
    assert found.degenerate
    assert found.snr_db == math.inf
    assert found.max_abs == pytest.approx(2e-4)
    assert Gate(Limit()).check(found).passed
    assert not Gate(Limit()).check(compare([f32(5e-4)], [f32(3e-4)], [None])).passed


def test_degenerate_reference_does_not_excuse_a_large_answer() -> None:
    found = compare([f32(5e-4)], [f32(0.5)], [None], usual_peaks=[1])
    assert not found.degenerate
    assert not Gate(Limit()).check(found).passed


def test_output_that_is_always_zero_may_differ_by_rounding() -> None:
    assert compare([f32(0)], [f32(1e-8)], [None], usual_peaks=[0]).degenerate
    assert not compare([f32(0)], [f32(0)], [None], usual_peaks=[0]).degenerate
    assert compare([f32(0)], [f32(1e-3)], [None], usual_peaks=[0]).snr_db == -math.inf


def test_degenerate_sample_does_not_hide_the_other_outputs() -> None:
    """One of two outputs is degenerate; the wrong one still decides, over the samples too."""
    sample = compare([f32(5e-4), f32(1)], [f32(3e-4), f32(2)], [None, None], usual_peaks=[1, 1])
    found = worst([sample, EXACT])
    assert found.degenerate
    assert found.snr_db == 0


def test_over_samples_the_worst_counts_and_class_shares_are_averaged() -> None:
    good = Agreement(0.1, 0.999, 50.0, 60.0, steps=1, equal_share=1.0)
    bad = Agreement(0.3, 0.99, 20.0, 70.0, steps=4, equal_share=0.0, has_nan=True)
    found = worst([good, bad, good, good])
    assert (found.max_abs, found.cosine, found.snr_db, found.psnr_db) == (0.3, 0.99, 20.0, 60.0)
    assert (found.steps, found.equal_share, found.has_nan) == (4, 0.75, True)


def test_usual_peak_is_the_largest_finite_real_value() -> None:
    samples = [[f32(1, -3), i8(12), np.array([9])], [f32(2, math.inf), i8(20), np.array([9])]]
    assert usual_peaks(samples, [None, SCALE, None]) == (3, 5, 0)


def eight(*outputs: Array) -> list[list[Array]]:
    return [list(outputs) for _ in range(8)]


def test_floor_is_the_worst_spread_of_the_kernel_sets() -> None:
    floor = Floor.calibrate(
        {
            "xnnpack": [*eight(f32(10, 0))[:7], [f32(10, 1)]],
            "reference": eight(f32(10, 0)),
            "builtin": eight(f32(10, 0.1)),
        },
        [None],
        reference="reference",
    )
    assert floor.kernels == ("reference", "xnnpack", "builtin")
    assert floor.samples == 8
    assert floor.usual_peaks == (10,)
    assert floor.agreement.max_abs == pytest.approx(1)
    assert floor.agreement.snr_db == pytest.approx(20)


def test_floor_of_class_outputs_takes_the_worst_kernel_set() -> None:
    same, other = np.array([1]), np.array([2])
    floor = Floor.calibrate(
        {"reference": eight(same), "builtin": eight(same), "xnnpack": [*eight(same)[:6], [other], [other]]},
        [None],
        reference="reference",
    )
    assert floor.agreement.equal_share == 0.75
    assert Limit().looser(floor).equal_share == pytest.approx(0.625)


def test_degenerate_samples_do_not_loosen_the_floor() -> None:
    floor = Floor.calibrate(
        {
            "reference": [*eight(f32(1))[:7], [f32(1e-7)]],
            "xnnpack": [*eight(f32(1))[:7], [f32(-1e-7)]],
        },
        [None],
        reference="reference",
    )
    assert floor.agreement.snr_db == math.inf
    assert floor.agreement.degenerate


def test_single_kernel_set_has_an_exact_floor() -> None:
    floor = Floor.calibrate({"xnnpack": eight(f32(1))}, [None], reference="xnnpack")
    assert floor.agreement == EXACT
    assert Limit().looser(floor) == Limit()


def test_floor_needs_samples_and_its_reference() -> None:
    with pytest.raises(ValueError, match="at least 8 samples, not 1"):
        Floor.calibrate({"reference": [[f32(1)]]}, [None], reference="reference")
    with pytest.raises(ValueError, match="no outputs of 'reference'"):
        Floor.calibrate({"xnnpack": eight(f32(1))}, [None], reference="reference")


def floor_of(agreement: Agreement) -> Floor:
    return Floor(agreement, ("reference", "xnnpack"), 8, (1.0,))


def test_limit_is_one_and_a_half_times_the_floors_error() -> None:
    floor = floor_of(Agreement(0.2, 0.98, 19.0, 30.0, steps=29))
    limit = Limit(max_abs=0.1).looser(floor)
    assert limit.cosine == pytest.approx(0.97)
    assert limit.snr_db == pytest.approx(19 - 10 * math.log10(1.5))
    assert limit.max_abs == pytest.approx(0.3)
    assert limit.equal_share == 0.99


def test_users_limit_stays_when_it_is_looser_than_the_floor() -> None:
    floor = floor_of(Agreement(1e-6, 1.0, 120.0, 130.0))
    assert Limit().looser(floor) == Limit()
    assert Limit(cosine=None, snr_db=5.0).looser(floor_of(Agreement(1, 0.5, 10.0, 10.0))) == Limit(
        cosine=None, snr_db=5.0
    )


def test_gate_tells_a_limit_from_the_floor_in_few_digits() -> None:
    passed, reason = Gate(Limit(snr_db=21.820379118470264)).check(Agreement(0.1, 0.999, 21.2, 40.0))
    assert (passed, reason) == (False, "SNR 21.2 dB, limit 21.82 dB")


def test_gate_says_which_measure_failed_and_by_how_much() -> None:
    gate = Gate(Limit(max_abs=0.5))
    assert gate.check(Agreement(0.1, 0.995, 31.0, 40.0)) == (True, "")
    passed, reason = gate.check(Agreement(1.0, 0.9, 12.34, 40.0, equal_share=0.5))
    assert not passed
    assert reason == (
        "cosine 0.9, limit 0.99; SNR 12.3 dB, limit 30 dB; equal elements 0.5, limit 0.99;"
        " largest difference 1, limit 0.5"
    )


def test_metric_is_a_bound_of_its_own() -> None:
    limit = Limit().with_metric(0.92)
    assert limit.metric == pytest.approx(0.91)
    assert Limit(metric=0.5).with_metric(0.92).metric == 0.5
    gate = Gate(limit)
    assert gate.check(Agreement(0, 1, math.inf, math.inf, metric=0.915)).passed
    assert gate.check(Agreement(0, 1, math.inf, math.inf, metric=0.9)).reason.startswith("metric 0.9,")


def test_whole_model_on_the_cpu_is_right_by_definition_unless_it_gives_nan() -> None:
    gate = Gate(Limit())
    assert gate.check(Agreement(100, 0, -20.0, 0.0), whole_cpu=True).passed
    assert not gate.check(Agreement(0, 1, math.inf, math.inf, has_nan=True), whole_cpu=True).passed


def test_limit_that_tests_nothing_says_so() -> None:
    limit = Limit().looser(floor_of(Agreement(5.0, 0.2, -3.0, 1.0)))
    assert "SNR -4." in limit.weakness
    assert Limit().weakness == ""


def test_a_limit_survives_the_map() -> None:
    floor = floor_of(Agreement(0.25, 0.98, 19.0, 30.0, steps=29.0, equal_share=0.75))
    limit = Limit(metric=0.5).looser(floor)
    assert Limit.from_dict(json.loads(json.dumps(limit.to_dict(), allow_nan=False))) == limit


def test_floor_of_outputs_with_other_shapes_is_still_a_number() -> None:
    floor = Floor.calibrate(
        {"reference": eight(f32(1, 2)), "xnnpack": eight(f32(1))}, [None], reference="reference"
    )
    assert floor.agreement.snr_db == LOWEST_SNR_DB
    assert Limit().looser(floor).weakness


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    reference=hnp.arrays(np.float32, (2, 3), elements=st.floats(-1e6, 1e6, width=32)),
    got=hnp.arrays(np.float32, (2, 3), elements=st.floats(-1e6, 1e6, width=32)),
)
def test_measures_keep_their_ranges_and_relations(reference: Array, got: Array) -> None:
    found = compare([reference], [got], [None])
    assert found.max_abs >= 0
    assert -1 <= found.cosine <= 1
    assert found.psnr_db >= found.snr_db
    assert (found.max_abs == 0) == (found.snr_db == math.inf)
    assert not math.isnan(found.snr_db)
    assert found == compare([reference.reshape(6)], [got.reshape(6)], [None])
