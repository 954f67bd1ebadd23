"""Numeric agreement: how far outputs are from the reference, and how far is too far for this model.

All numbers are taken on *real* values: quantized outputs are dequantized first. What is compared with what is fixed by
:mod:`~.reference`; the bound is calibrated per model by :class:`Floor`, because correct kernels disagree too (MLPerf
Tiny ResNet8 int8: up to 29 of 255 steps between XNNPACK and the reference kernels).

Three kinds of outputs are told apart:

* *values*: floating point, complex, and integers with a quantization. They have ``max_abs``, ``cosine``, ``snr_db``,
  ``psnr_db``, and ``steps`` when quantized.
* *classes*: integers without a quantization (an arg-max, a count) and bool. Being off by one says nothing there, so they
  have ``equal_share`` alone.
* *strings*: ``equal_share``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edgeplace.measure.measurement import Agreement
from edgeplace.tflite.model import Quantization

MIN_CALIBRATION_SAMPLES = 8
DEFAULT_COSINE = 0.99
DEFAULT_SNR_DB = 30.0
DEFAULT_EQUAL_SHARE = 0.99
DEFAULT_METRIC_DROP = 0.01
"""How much a task metric may fall under the reference's own when the user names no bound."""

FLOOR_FACTOR = 1.5
DEGENERATE_PEAK = 1e-3
"""A reference output whose peak is under this share of the tensor's usual peak carries no signal."""
DEGENERATE_ERROR = 1e-2
"""... and its error is harmless while it stays under this share of the usual peak (40 dB below it)."""
LOWEST_SNR_DB = -100.0
"""A floor's SNR and PSNR are never written as less: the outputs have nothing in common."""

ZERO_TOLERANCE = 1e-6
"""An output that the reference always leaves at zero may differ from it by rounding of this size."""

Array = npt.NDArray[Any]
Outputs = Sequence[Array]
"""The outputs of one sample, in the graph's order."""

EXACT = Agreement(max_abs=0.0, cosine=1.0, snr_db=math.inf, psnr_db=math.inf)
"""Nothing differs; also the agreement of no outputs."""

_WRONG = Agreement(max_abs=math.inf, cosine=-1.0, snr_db=-math.inf, psnr_db=-math.inf, equal_share=0.0)


def compare(
    reference: Outputs,
    got: Outputs,
    quantization: Sequence[Quantization | None],
    usual_peaks: Sequence[float] | None = None,
) -> Agreement:
    """How far the outputs of one sample are from the reference; over the outputs the worst counts.

    Args:
        reference: The reference's outputs, in the graph's order.
        got: The outputs to judge, in the same order.
        quantization: Of each output, ``None`` for those without.
        usual_peaks: The usual peak of each output (:attr:`Floor.usual_peaks`), which lets degenerate outputs be
            recognised; without it none is.

    Returns:
        The agreement. Outputs of another number, shape or type give the worst there is (:func:`mismatch` says what
        differs in words). ``degenerate`` means that at least one output carried no signal: its cosine, SNR and PSNR are left out.

    Raises:
        ValueError: ``quantization`` or ``usual_peaks`` have another length than ``reference``.
    """
    if len(quantization) != len(reference):
        raise ValueError(f"{len(reference)} outputs with {len(quantization)} quantizations")
    if usual_peaks is not None and len(usual_peaks) != len(reference):
        raise ValueError(f"{len(reference)} outputs with {len(usual_peaks)} usual peaks")
    if mismatch(reference, got):
        return _WRONG
    peaks: Sequence[float | None] = usual_peaks if usual_peaks is not None else [None] * len(reference)
    found = [compare_output(*item) for item in zip(reference, got, quantization, peaks, strict=True)]
    return _worst_of([_without_ratios(item) if item.degenerate else item for item in found])


def compare_output(
    reference: Array, got: Array, quantization: Quantization | None = None, usual_peak: float | None = None
) -> Agreement:
    """How far one output is from the reference; names the culprit when taken output by output.

    NaN and infinities: a position where both hold the same one (a mask of -inf) is left out; any other makes
    ``has_nan``. With an all-zero reference the SNR is -inf and the cosine 0, unless the outputs are equal.
    """
    reference, got = np.asarray(reference), np.asarray(got)
    if mismatch([reference], [got]):
        return _WRONG
    if reference.size == 0:
        return EXACT
    if _is_class_like(reference, quantization):
        share = _equal_share(reference, got)
        return Agreement(0.0, 1.0, math.inf, math.inf, equal_share=share)
    left, right = dequantize(reference, quantization), dequantize(got, quantization)
    usable = np.isfinite(left) & np.isfinite(right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    has_nan = bool(np.any(~usable & ~same))
    found = _compare_values(left[usable], right[usable])
    steps = None
    if quantization is not None and quantization.scales:
        steps = float(np.max(np.abs(reference.astype(np.float64) - got.astype(np.float64))))
    degenerate = not has_nan and _is_degenerate(left[usable], found.max_abs, usual_peak)
    return replace(found, steps=steps, has_nan=has_nan, degenerate=degenerate)


def worst(agreements: Sequence[Agreement]) -> Agreement:
    """One agreement for several samples: the worst of each measure.

    ``equal_share`` is the mean instead: an output that holds one class number is right or wrong as a whole, so its
    worst sample would be 0 as soon as one of a thousand differs.
    """
    shares = [item.equal_share for item in agreements if item.equal_share is not None]
    return replace(_worst_of(agreements), equal_share=math.fsum(shares) / len(shares) if shares else None)


def mismatch(reference: Outputs, got: Outputs) -> str:
    """What makes the outputs incomparable (number, shape, type), in words; empty when they can be compared."""
    if len(reference) != len(got):
        return f"{len(got)} outputs where the reference has {len(reference)}"
    for number, (left, right) in enumerate(zip(reference, got, strict=True)):
        left, right = np.asarray(left), np.asarray(right)
        if left.shape != right.shape:
            return f"output {number} has shape {list(right.shape)}, the reference {list(left.shape)}"
        if left.dtype != right.dtype and not (_is_text(left) and _is_text(right)):
            return f"output {number} has type {right.dtype}, the reference {left.dtype}"
    return ""


def dequantize(array: Array, quantization: Quantization | None) -> Array:
    """Real values, as float64 (complex128 for complex): ``scale * (q - zero_point)``, per tensor or along the axis."""
    if np.iscomplexobj(array):
        return array.astype(np.complex128)
    values: Array = np.asarray(array).astype(np.float64)
    if quantization is None or not quantization.scales:
        return values
    scales = np.asarray(quantization.scales, dtype=np.float64)
    zero_points = np.asarray(quantization.zero_points or (0,), dtype=np.float64)
    if scales.size > 1:
        shape = [1] * values.ndim
        shape[quantization.axis] = scales.size
        scales = scales.reshape(shape)
        zero_points = zero_points.reshape(shape) if zero_points.size > 1 else zero_points
    real: Array = scales * (values - zero_points)
    return real


def usual_peaks(samples: Sequence[Outputs], quantization: Sequence[Quantization | None]) -> tuple[float, ...]:
    """The usual peak of each output: its largest finite absolute real value over the calibration samples.

    Classes and strings have none: 0.
    """
    peaks = [0.0] * len(quantization)
    for outputs in samples:
        for number, (array, scale) in enumerate(zip(outputs, quantization, strict=True)):
            array = np.asarray(array)
            if not _is_class_like(array, scale):
                peaks[number] = max(peaks[number], _peak(dequantize(array, scale)))
    return tuple(peaks)


@dataclass(frozen=True, slots=True)
class Floor:
    """How far correct kernels are from each other on this model: nothing tighter can be asked of a platform.

    Attributes:
        agreement: Worst agreement of the other kernel sets with the reference over all calibration samples.
        kernels: The kernel sets that ran, the reference first. With one alone there is no spread: the floor is exact.
        samples: Number of inputs it was calibrated on.
        usual_peaks: The usual peak of each output, see :func:`usual_peaks`.
    """

    agreement: Agreement
    kernels: tuple[str, ...]
    samples: int
    usual_peaks: tuple[float, ...]

    @classmethod
    def calibrate(
        cls,
        outputs: Mapping[str, Sequence[Outputs]],
        quantization: Sequence[Quantization | None],
        *,
        reference: str,
    ) -> Floor:
        """The floor from the whole model's outputs on several kernel sets.

        Args:
            outputs: Kernel set (``reference``, ``builtin``, ``xnnpack``) -> its outputs for each sample. Sets that
                cannot run the model are left out.
            quantization: Of each output, ``None`` for those without.
            reference: Which of the sets is the reference.

        Raises:
            ValueError: Fewer than :data:`MIN_CALIBRATION_SAMPLES` samples, the sets have different numbers of them, or
                ``reference`` is not among the sets.
        """
        expected = outputs.get(reference)
        if expected is None:
            raise ValueError(f"no outputs of '{reference}' among {sorted(outputs)}")
        if len(expected) < MIN_CALIBRATION_SAMPLES:
            raise ValueError(f"a floor needs at least {MIN_CALIBRATION_SAMPLES} samples, not {len(expected)}")
        peaks = usual_peaks(expected, quantization)
        spread: list[Agreement] = []
        others = [name for name in outputs if name != reference]
        for name in others:
            # One kernel set at a time, since `worst` averages equal shares and the worst set must count.
            pairs = zip(expected, outputs[name], strict=True)
            spread.append(worst([compare(left, right, quantization, peaks) for left, right in pairs]))
        agreement = _worst_of(spread)
        agreement = replace(
            agreement,
            snr_db=max(agreement.snr_db, LOWEST_SNR_DB),
            psnr_db=max(agreement.psnr_db, LOWEST_SNR_DB),
        )
        return cls(agreement, (reference, *others), len(expected), peaks)


@dataclass(frozen=True, slots=True)
class Limit:
    """The bounds a placement must keep; ``None`` means that measure is not gated.

    The user's own limits have the defaults of this class; :meth:`looser` merges them with a model's floor.

    Attributes:
        metric: Lowest task metric (``--metric``) that is still right.
    """

    cosine: float | None = DEFAULT_COSINE
    snr_db: float | None = DEFAULT_SNR_DB
    max_abs: float | None = None
    equal_share: float | None = DEFAULT_EQUAL_SHARE
    metric: float | None = None

    def looser(self, floor: Floor) -> Limit:
        """The looser of this limit and 1.5 times the floor, measure by measure.

        "1.5 times" means that much more *error*: 1.5 times the error energy for the SNR (1.76 dB below the floor's)
        and for ``1 - cosine`` (which is proportional to the energy of a small error), 1.5 times the distance for
        ``max_abs``, 1.5 times the differing elements for ``equal_share``. The metric has no floor.
        """
        spread = floor.agreement
        return replace(
            self,
            cosine=_looser_low(self.cosine, 1 - FLOOR_FACTOR * (1 - spread.cosine)),
            snr_db=_looser_low(self.snr_db, spread.snr_db - 10 * math.log10(FLOOR_FACTOR)),
            max_abs=None if self.max_abs is None else max(self.max_abs, FLOOR_FACTOR * spread.max_abs),
            equal_share=_looser_low(
                self.equal_share,
                1.0 if spread.equal_share is None else 1 - FLOOR_FACTOR * (1 - spread.equal_share),
            ),
        )

    def with_metric(self, reference_metric: float, *, max_drop: float = DEFAULT_METRIC_DROP) -> Limit:
        """This limit, with the metric bounded to ``max_drop`` below the reference's unless a bound is given."""
        return self if self.metric is not None else replace(self, metric=reference_metric - max_drop)

    @property
    def weakness(self) -> str:
        """Why this limit says little about right and wrong, in words; empty when it is a real test.

        It happens to models on which correct kernels disagree wildly, usually because the inputs mean nothing to
        them; inputs of the real task (``--inputs``) or a task metric cure it.
        """
        weak = [
            text
            for text, value, least in (
                (f"SNR {self.snr_db} dB", self.snr_db, 10.0),
                (f"cosine {self.cosine}", self.cosine, 0.9),
                (f"equal share {self.equal_share}", self.equal_share, 0.5),
            )
            if value is not None and value < least
        ]
        if not weak:
            return ""
        return f"correct kernels disagree so much on these inputs that the limit is only {', '.join(weak)}"

    def to_dict(self) -> dict[str, float | None]:
        """Plain data for the map."""
        return {
            "cosine": self.cosine,
            "snr_db": self.snr_db,
            "max_abs": self.max_abs,
            "equal_share": self.equal_share,
            "metric": self.metric,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Limit:
        """The limit that :meth:`to_dict` wrote."""
        return cls(**{name: data[name] for name in ("cosine", "snr_db", "max_abs", "equal_share", "metric")})


class GateResult(NamedTuple):
    """Whether outputs are right enough, and if not, by which measure and how much."""

    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides whether an agreement is right enough to be used."""

    limit: Limit

    def check(self, agreement: Agreement, *, whole_cpu: bool = False) -> GateResult:
        """Judge one agreement (of all samples, see :func:`worst`).

        Args:
            whole_cpu: It is the whole model on the CPU, which is feasible by definition unless it gives NaN or
                infinities.
        """
        if agreement.has_nan:
            return GateResult(False, "NaN or infinity where the reference has none")
        if whole_cpu:
            return GateResult(True, "")
        if math.isinf(agreement.max_abs):
            return GateResult(False, "the outputs have another number, shape or type than the reference")
        limit = self.limit
        broken = [
            f"{what} {value:{form}}{unit}, limit {least:.4g}{unit}"
            for what, value, form, unit, least in (
                ("cosine", agreement.cosine, ".6g", "", limit.cosine),
                ("SNR", agreement.snr_db, ".1f", " dB", limit.snr_db),
                ("equal elements", agreement.equal_share, ".6g", "", limit.equal_share),
                ("metric", agreement.metric, ".6g", "", limit.metric),
            )
            if value is not None and least is not None and not value >= least
        ]
        if limit.max_abs is not None and not agreement.max_abs <= limit.max_abs:
            broken.append(f"largest difference {agreement.max_abs:.6g}, limit {limit.max_abs:.6g}")
        return GateResult(not broken, "; ".join(broken))


def _without_ratios(degenerate: Agreement) -> Agreement:
    """A degenerate output keeps its absolute error; what is relative to a signal it does not have goes."""
    return replace(degenerate, cosine=1.0, snr_db=math.inf, psnr_db=math.inf)


def _worst_of(agreements: Sequence[Agreement]) -> Agreement:
    """The worst of each measure."""
    steps = [item.steps for item in agreements if item.steps is not None]
    shares = [item.equal_share for item in agreements if item.equal_share is not None]
    metrics = [item.metric for item in agreements if item.metric is not None]
    return Agreement(
        max_abs=max((item.max_abs for item in agreements), default=0.0),
        cosine=min((item.cosine for item in agreements), default=1.0),
        snr_db=min((item.snr_db for item in agreements), default=math.inf),
        psnr_db=min((item.psnr_db for item in agreements), default=math.inf),
        steps=max(steps) if steps else None,
        equal_share=min(shares) if shares else None,
        has_nan=any(item.has_nan for item in agreements),
        degenerate=any(item.degenerate for item in agreements),
        metric=min(metrics) if metrics else None,
    )


def _compare_values(reference: Array, got: Array) -> Agreement:
    """Agreement of finite real (or complex) values of equal shape."""
    if reference.size == 0:
        return EXACT
    with np.errstate(over="ignore", invalid="ignore"):
        max_abs = float(np.max(np.abs(reference - got)))
    if max_abs == 0.0:
        return EXACT
    # Scaled by the largest value, so that squares of 1e200 or 1e-200 stay in range.
    scale = max(_peak(reference), _peak(got))
    left, right = reference.ravel() / scale, got.ravel() / scale
    error = left - right
    signal_energy = float(np.vdot(left, left).real)
    got_energy = float(np.vdot(right, right).real)
    error_energy = float(np.vdot(error, error).real)
    if signal_energy == 0.0:
        return Agreement(max_abs, 0.0, -math.inf, -math.inf)
    cosine = 0.0
    if got_energy > 0.0:
        cosine = float(np.vdot(left, right).real) / math.sqrt(signal_energy * got_energy)
    peak = float(np.max(np.abs(left)))
    return Agreement(
        max_abs=max_abs,
        cosine=max(-1.0, min(1.0, cosine)),
        snr_db=_decibel(signal_energy, error_energy),
        psnr_db=_decibel(peak * peak * left.size, error_energy),
    )


def _is_degenerate(reference: Array, max_abs: float, usual_peak: float | None) -> bool:
    if usual_peak is None:
        return False
    if usual_peak == 0.0:
        return 0.0 < max_abs <= ZERO_TOLERANCE
    return _peak(reference) < DEGENERATE_PEAK * usual_peak and max_abs <= DEGENERATE_ERROR * usual_peak


def _is_class_like(array: Array, quantization: Quantization | None) -> bool:
    if _is_text(array) or array.dtype.kind == "b":
        return True
    return array.dtype.kind in "iu" and (quantization is None or not quantization.scales)


def _is_text(array: Array) -> bool:
    return array.dtype.kind in "OSU"


def _equal_share(reference: Array, got: Array) -> float:
    if not _is_text(reference):
        return float(np.mean(reference == got))
    pairs = zip(reference.ravel().tolist(), got.ravel().tolist(), strict=True)
    return sum(_as_bytes(left) == _as_bytes(right) for left, right in pairs) / reference.size


def _as_bytes(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()


def _peak(values: Array) -> float:
    magnitudes = np.abs(values)
    finite = magnitudes[np.isfinite(magnitudes)]
    return float(finite.max()) if finite.size else 0.0


def _decibel(signal: float, error: float) -> float:
    return math.inf if error == 0.0 else 10 * math.log10(signal / error)


def _looser_low(asked: float | None, floor: float) -> float | None:
    return None if asked is None else min(asked, floor)
