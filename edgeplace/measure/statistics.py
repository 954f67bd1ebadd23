"""Statistics of run times: medians, bootstrap intervals and paired ratios, with nothing that knows about boards.

Run times are not independent: a frequency step, a hot core or a neighbour's load lasts for many runs. An ordinary
bootstrap treats every run as news and gives intervals that are far too narrow. Two guards against that, and the wider
of the two counts:

* The bootstrap resamples *blocks* of neighbouring values (Künsch, "The jackknife and the bootstrap for general
  stationary observations", Annals of Statistics 17, 1989; circular form: Politis and Romano, 1992). The block is one
  value long when the series looks independent and grows with its autocorrelation.
* Batch means (Conway, "Some tactical problems in digital simulation", Management Science 10, 1963): the series is cut
  into six consecutive batches, and Student's t is taken over the batches' medians. It sees moods of the machine that
  last far longer than any autocorrelation a short series could show.

On a first-order autoregression of 0.8 the blocks alone cover the true median in 85 % of the cases, both together in 93 %.

Every function is deterministic: the resampling has a fixed seed, so the same times always give the same interval.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from edgeplace.errors import InputError
from edgeplace.measure.measurement import Timing

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 1000
BATCHES = 6
SEED = 20191216
DEFAULT_TARGET_HALF_WIDTH = 0.02
"""Half width of the interval of the median, as a share of the median, at which timing stops."""

_NORMAL_PER_MAD = 1.4826
"""Standard deviations of a normal distribution per median absolute deviation."""

_CHUNK_ELEMENTS = 1 << 21
_CACHED_ELEMENTS = 1 << 19


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """How often a plan is run to be timed, as sent to the agent.

    The runs of one measurement, in order:

    1. one *first run*, kept apart (``first_run_ms``),
    2. *warm-up* runs, thrown away, until there were at least ``warmup_min_runs`` of them **and** they took at least
       ``warmup_min_s`` together, or until they took ``budget_s``,
    3. *timed* runs, until there are ``min_runs`` **and** half the width of the 95 % interval of the median is at most
       ``target_half_width`` of the median, or until there are ``max_runs`` or they took ``budget_s`` (counted anew).
       Three are made however slow they are.

    So the total is ``1 + warm-up + timed`` with ``min(3, max_runs) <= timed <= max_runs``. What bounds a plan that
    hangs is the request's own deadline. Timed runs that ended without reaching ``target_half_width`` make a *noisy*
    timing.
    """

    warmup_min_runs: int = 3
    warmup_min_s: float = 0.1
    min_runs: int = 20
    max_runs: int = 1000
    budget_s: float = 2.0
    target_half_width: float = DEFAULT_TARGET_HALF_WIDTH

    def __post_init__(self) -> None:
        if self.warmup_min_runs < 0 or self.warmup_min_s < 0:
            raise InputError("a timing plan cannot have less than 0 warm-up runs or seconds")
        if not 1 <= self.min_runs <= self.max_runs:
            raise InputError(
                f"a timing plan needs 1 <= min_runs <= max_runs, not {self.min_runs} and {self.max_runs}"
            )
        if not (self.budget_s > 0 and math.isfinite(self.budget_s)):
            raise InputError(f"a timing plan needs a budget above 0 s, not {self.budget_s}")
        if not 0 < self.target_half_width < 1:
            raise InputError(
                f"target_half_width is a share of the median between 0 and 1, not {self.target_half_width}"
            )

    def to_wire(self) -> dict[str, int | float]:
        """The ``timing`` object of the agent's requests; its keys are the fields of this class."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """The typical ratio of two interleaved series and its interval; below 1 means the first is faster.

    Attributes:
        ratio: Median over the rounds of (first / second).
        low: Lower end of the interval.
        high: Upper end of the interval.
        rounds: Number of rounds it rests on.
        block: Rounds per resampled block; 1 when the rounds look independent.
        scatter: Robust standard deviation of the rounds' log ratios: how much one round differs from the next.
    """

    ratio: float
    low: float
    high: float
    rounds: int
    block: int
    scatter: float


def block_length(values: Sequence[float] | Floats) -> int:
    """How many neighbouring values one resampled block takes.

    The lag-1 autocorrelation is estimated on the *signs* around the median, which outliers and heavy tails cannot
    bend, and turned into that of a Gaussian series with the same signs (the arcsine law). The length is then
    Carlstein's optimum for a first-order autoregression, ``(sqrt(6) r / (1 - r^2))^(2/3) n^(1/3)`` (Annals of
    Statistics 14, 1986), at most a quarter of the series, so that there are always four blocks.
    """
    series = np.asarray(values, dtype=np.float64)
    count = series.size
    if count < 8:
        return 1
    signs = np.sign(series - np.median(series))
    signs -= signs.mean()
    power = float(signs @ signs)
    if power == 0.0:
        return 1
    correlation = math.sin(math.pi / 2 * float(signs[1:] @ signs[:-1]) / power)
    if correlation <= 0.0:
        return 1
    correlation = min(correlation, 0.98)
    optimum = (math.sqrt(6) * correlation / (1 - correlation**2)) ** (2 / 3) * count ** (1 / 3)
    return int(min(max(math.ceil(optimum), 1), count // 4))


def median_interval(
    values: Sequence[float] | Floats,
    *,
    confidence: float = CONFIDENCE,
    block: int | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> tuple[float, float]:
    """The interval of the median: the wider of a block bootstrap (percentile method) and batch means.

    Args:
        values: The series in the order it was measured; at least one value.
        confidence: Two-sided coverage aimed at; each tail gets half of the rest.
        block: Values per block; by default :func:`block_length` of the series.

    Returns:
        The lower and upper end. One value, or equal values, give an interval of width 0.

    Raises:
        ValueError: There is no value, or one that is not finite.
    """
    series = _finite(values)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is between 0 and 1, not {confidence}")
    medians = _resampled_medians(series, block or block_length(series), resamples, seed)
    tail = (1 - confidence) / 2
    low, high = (float(end) for end in np.quantile(medians, (tail, 1 - tail)))
    if series.size < 2 * BATCHES:
        return low, high
    middle, half_width = float(np.median(series)), _batch_half_width(series, tail)
    least, most = float(series.min()), float(series.max())
    return max(least, min(low, middle - half_width)), min(most, max(high, middle + half_width))


def round_medians(rounds_ms: Sequence[Sequence[float]]) -> Floats:
    """The median of each round's runs; rounds may have different numbers of runs, none may be empty."""
    if any(len(runs) == 0 for runs in rounds_ms):
        raise ValueError("a round has no run")
    if len({len(runs) for runs in rounds_ms}) == 1:
        return _row_medians(np.array(rounds_ms, dtype=np.float64))
    return np.array([np.median(runs) for runs in rounds_ms], dtype=np.float64)


def paired_ratio(
    first_rounds_ms: Sequence[Sequence[float]],
    second_rounds_ms: Sequence[Sequence[float]],
    *,
    confidence: float = CONFIDENCE,
    lag_rounds: float = 0.0,
) -> RatioInterval:
    """The median ratio of two plans that ran in the same rounds, with its interval.

    Each round gives one ratio, of the medians of its runs: what lasts longer than a round (heat, a frequency step, a
    neighbour) is in both and cancels. What is left of a steady drift is the small step *within* a round, because one
    plan ran later than the other; it is removed with the Theil-Sen slope of both series.

    Args:
        first_rounds_ms: Times ``[round][run]``, milliseconds, all above 0.
        second_rounds_ms: The same rounds of the other plan.
        lag_rounds: How much later in the round the first plan ran, in rounds: -0.5 for the first of two plans
            (A B A B in every round), 0 when they took turns at being first, as the agent lets them.

    Raises:
        ValueError: The two have different numbers of rounds or none, or a time is not a positive number.
    """
    first, second = round_medians(first_rounds_ms), round_medians(second_rounds_ms)
    if first.size != second.size or first.size == 0:
        raise ValueError(f"paired rounds must be equal in number and not 0: {first.size} and {second.size}")
    if not (np.all(first > 0) and np.all(second > 0)):
        raise ValueError("a time is not above 0 ms")
    logs_first, logs_second = np.log(first), np.log(second)
    ratios = _finite(logs_first - logs_second)
    if lag_rounds:
        ratios = ratios - lag_rounds * (_theil_sen_slope(logs_first) + _theil_sen_slope(logs_second)) / 2
    block = block_length(ratios)
    low, high = median_interval(ratios, confidence=confidence, block=block)
    middle = float(np.median(ratios))
    return RatioInterval(
        ratio=math.exp(middle),
        low=math.exp(low),
        high=math.exp(high),
        rounds=int(ratios.size),
        block=block,
        scatter=_NORMAL_PER_MAD * float(np.median(np.abs(ratios - middle))),
    )


def timing_from(
    times_ms: Sequence[float],
    *,
    segment_ms: Sequence[float] = (),
    handover_ms: Sequence[float] = (),
    prepare_ms: Sequence[float] = (),
    first_run_ms: float = 0.0,
    target_half_width: float = DEFAULT_TARGET_HALF_WIDTH,
    noisy: bool | None = None,
) -> Timing:
    """A :class:`Timing` from raw times.

    Args:
        times_ms: Total time of each timed run, in order; at least one.
        segment_ms: Median time of each segment; the other sequences likewise, see :class:`Timing`.
        target_half_width: Share of the median that half the interval may have before the timing counts as noisy.
        noisy: What the agent found, when it already decided; by default it is decided here.

    Raises:
        ValueError: There is no time, or one that is not finite.
    """
    series = _finite(times_ms)
    median = float(np.median(series))
    low, high = median_interval(series)
    p90, p99 = np.quantile(series, (0.9, 0.99))
    return Timing(
        times_ms=tuple(float(value) for value in series),
        p50_ms=median,
        ci95_ms=(low, high),
        min_ms=float(series.min()),
        p90_ms=float(p90),
        p99_ms=float(p99),
        segment_ms=tuple(float(value) for value in segment_ms),
        handover_ms=tuple(float(value) for value in handover_ms),
        prepare_ms=tuple(float(value) for value in prepare_ms),
        first_run_ms=float(first_run_ms),
        noisy=(high - low) / 2 > target_half_width * median if noisy is None else noisy,
    )


def _finite(values: Sequence[float] | Floats) -> Floats:
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 or series.size == 0:
        raise ValueError("a series needs at least one value")
    if not np.all(np.isfinite(series)):
        raise ValueError("a series has a value that is not finite")
    return series


def _theil_sen_slope(series: Floats) -> float:
    """Median slope over all pairs: change per step, unmoved by up to 29 % of outliers."""
    earlier, later = np.triu_indices(series.size, k=1)
    if earlier.size == 0:
        return 0.0
    return float(np.median((series[later] - series[earlier]) / (later - earlier)))


def _batch_half_width(series: Floats, tail: float) -> float:
    """Half width of Student's interval over the medians of consecutive batches."""
    medians = np.array([np.median(batch) for batch in np.array_split(series, BATCHES)])
    return _student_t_5(tail) * float(medians.std(ddof=1)) / math.sqrt(BATCHES)


@functools.lru_cache(maxsize=16)
def _student_t_5(tail: float) -> float:
    """The value that Student's t with 5 degrees of freedom (:data:`BATCHES` - 1) exceeds with probability ``tail``.

    The distribution has a closed form for odd degrees of freedom (Abramowitz and Stegun, 26.7.3); bisection inverts it.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        cosine = math.cos(angle)
        within = 2 / math.pi * (angle + math.sin(angle) * cosine * (1 + 2 / 3 * cosine**2))
        low, high = (angle, high) if within < 1 - 2 * tail else (low, angle)
    return math.sqrt(BATCHES - 1) * math.tan(low)


def _resampled_medians(series: Floats, block: int, resamples: int, seed: int) -> Floats:
    """Medians of ``resamples`` series of the same length, made of circular blocks."""
    count = series.size
    if count * resamples <= _CACHED_ELEMENTS:
        return _row_medians(series[_cached_indices(count, block, resamples, seed)])
    generator = np.random.default_rng(seed)
    rows_at_once = max(1, _CHUNK_ELEMENTS // count)
    medians = [
        _row_medians(series[_block_indices(generator, count, block, min(rows_at_once, resamples - done))])
        for done in range(0, resamples, rows_at_once)
    ]
    return np.concatenate(medians)


@functools.lru_cache(maxsize=16)
def _cached_indices(count: int, block: int, resamples: int, seed: int) -> npt.NDArray[np.intp]:
    return _block_indices(np.random.default_rng(seed), count, block, resamples)


def _block_indices(generator: np.random.Generator, count: int, block: int, rows: int) -> npt.NDArray[np.intp]:
    starts = generator.integers(0, count, size=(rows, -(-count // block)))
    indices = (starts[:, :, np.newaxis] + np.arange(block)) % count
    return indices.reshape(rows, -1)[:, :count].astype(np.intp)


def _row_medians(rows: Floats) -> Floats:
    middle = rows.shape[1] // 2
    if rows.shape[1] % 2:
        return np.partition(rows, middle, axis=1)[:, middle]
    parts = np.partition(rows, (middle - 1, middle), axis=1)
    mean: Floats = (parts[:, middle - 1] + parts[:, middle]) / 2
    return mean
