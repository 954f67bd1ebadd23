"""Run-time noise for the tests of the decision rule: synthetic families, and recorded series.

Every synthetic family gives factors on the true time, ``[series, step]``, one step after the other as things run. In a final
the plans take turns at being first, as the agent lets them (A B, B A, A B, ...), all runs of a turn in a row. The
recordings come from ``tools/bench/aa.py --save``, which runs them the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Noise = npt.NDArray[np.float64]
Generator = np.random.Generator

PLANS = 2
RECORDED_DIR = Path(__file__).parent / "data" / "run_times"


def white(rng: Generator, series: int, steps: int) -> Noise:
    """Independent, 5 %."""
    return np.exp(rng.normal(0, 0.05, (series, steps)))


def autocorrelated(rng: Generator, series: int, steps: int) -> Noise:
    """First-order autoregression, 5 %; what happens lasts ten runs, two slots of a round."""
    return np.exp(_autoregression(rng, series, steps, 0.9, 0.05))


def long_memory(rng: Generator, series: int, steps: int) -> Noise:
    """Wanders by 8 % over a hundred runs, and 2 % of independent noise."""
    return np.exp(_autoregression(rng, series, steps, 0.99, 0.08) + rng.normal(0, 0.02, (series, steps)))


def outliers(rng: Generator, series: int, steps: int) -> Noise:
    """2 %, and one run in ten takes on average three times as long."""
    hit = rng.random((series, steps)) < 0.1
    return np.exp(rng.normal(0, 0.02, (series, steps))) * (1 + hit * rng.exponential(2.0, (series, steps)))


def drift(rng: Generator, series: int, steps: int) -> Noise:
    """3 %, and the board gets 20 % slower over the final (heat)."""
    return np.exp(rng.normal(0, 0.03, (series, steps)) + np.linspace(0, 0.2, steps))


def frequency_steps(rng: Generator, series: int, steps: int) -> Noise:
    """2 %, and the clock jumps between two speeds 30 % apart, every 33 runs on average."""
    jumps = np.cumsum(rng.random((series, steps)) < 0.03, axis=1) + rng.integers(0, 2, (series, 1))
    return np.exp(rng.normal(0, 0.02, (series, steps))) * np.where(jumps % 2, 1.3, 1.0)


def heavy_tails(rng: Generator, series: int, steps: int) -> Noise:
    """Student's t with two degrees of freedom (infinite variance), scaled by 3 %."""
    return np.exp(0.03 * np.clip(rng.standard_t(2, (series, steps)), -8, 40))


def bursts(rng: Generator, series: int, steps: int, run_length: int = 25) -> Noise:
    """2 %, and a neighbour that takes up to half the machine for 25 runs at a time, a fifth of the time."""
    blocks = -(-steps // run_length) + 1
    busy = (rng.random((series, blocks)) < 0.2) * rng.uniform(0.1, 1.0, (series, blocks))
    start = int(rng.integers(0, run_length))
    load = np.repeat(busy, run_length, axis=1)[:, start : start + steps]
    return np.exp(rng.normal(0, 0.02, (series, steps))) * (1 + load)


SYNTHETIC: dict[str, Callable[[Generator, int, int], Noise]] = {
    family.__name__: family
    for family in (
        white, autocorrelated, long_memory, outliers, drift, frequency_steps, heavy_tails, bursts
    )
}  # fmt: skip

RECORDED = tuple(sorted(path.stem for path in RECORDED_DIR.glob("*.npz")))


def rounds_of(family: str, *, series: int, rounds: int, runs: int, seed: int) -> Noise:
    """Noise of a family (synthetic or recorded) as ``[series, plan, round, run]``."""
    rng = np.random.default_rng(seed)
    if family in SYNTHETIC:
        flat = SYNTHETIC[family](rng, series, rounds * PLANS * runs)
        turns = flat.reshape(series, rounds, PLANS, runs)
        turns[:, 1::2] = turns[:, 1::2, ::-1].copy()
        return turns.transpose(0, 2, 1, 3)
    times = np.load(RECORDED_DIR / f"{family}.npz", allow_pickle=False)["times_ns"].astype(np.float64) / 1e6
    assert times.shape[2] >= runs
    starts = rng.integers(0, times.shape[1] - rounds + 1, series)
    return np.stack([times[:, start : start + rounds, :runs] for start in starts])


def _autoregression(
    rng: Generator, series: int, steps: int, correlation: float, deviation: float
) -> npt.NDArray[Any]:
    values = np.empty((series, steps))
    values[:, 0] = rng.normal(0, deviation, series)
    shocks = rng.normal(0, deviation * np.sqrt(1 - correlation**2), (series, steps))
    for step in range(1, steps):
        values[:, step] = correlation * values[:, step - 1] + shocks[:, step]
    return values
