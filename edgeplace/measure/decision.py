"""Who wins the final: a contender, or the best single platform.

The final runs all plans in interleaved rounds (A B A B ...). Each round gives one ratio of contender to incumbent, and
the contender wins when the interval of the median ratio lies wholly beyond the margin (1 %). Everything else, a tie,
noise, too few rounds, leaves the best single platform as the answer: a split placement has costs that no clock
shows, so it must earn its place.

Why this is a sound rule
    * The number of rounds is fixed before the first one. Nobody looks at the ratios and decides to go on, so there is
      nothing to correct for repeated looks. A time budget may end the final early; it does not look at the ratios.
    * Contenders were chosen on *earlier* measurements. The rounds of the final are new, so being the luckiest of a
      thousand in the search gives no advantage here.
    * With several contenders each is tested at ``(1 - confidence) / number`` (Bonferroni): all of them together
      claim a false winner no more often than one would.
    * A contender must beat *every* single platform in the final, each at full level. Requiring all is never easier
      than requiring one (an intersection-union test), so it needs no correction and the noise that made one single
      platform look best does no harm.

What it was held to (``tests/test_measure_decision.py``): on recorded run times and on synthetic noise of every family
there (autocorrelated, outliers, drift, frequency steps, bursts, heavy tails), at the numbers of rounds and runs below, a
contender that is equal wins in at most 5 % of the finals and one that is 5 % faster in at least 90 % (found: 0 %, and
96 to 100 %; one that is exactly the margin faster, 1 %). On a machine so busy that rounds differ by tens of per cent
there are still no more false winners; gains must then be larger to be found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgeplace.measure.statistics import CONFIDENCE, RatioInterval, paired_ratio

DEFAULT_MARGIN = 0.01
DEFAULT_ROUNDS = 40
DEFAULT_RUNS_PER_ROUND = 5
MAX_ROUNDS = 300
LEAST_FINAL_S = 5.0
"""A final shorter than this sees one mood of the machine; fast models run more rounds, up to :data:`MAX_ROUNDS`."""

MIN_ROUNDS = 12
"""With fewer rounds a bootstrap interval is too narrow to be believed; nothing but the single platform can win."""

CALM_SCATTER = 0.08
SETTLED_ROUNDS = 100
MOST_CAUTION = 3.0
"""On a machine in a mood (the ratio changes by more than 8 % from one round to the next) fewer than 100 rounds may all lie
within that mood, so their interval is widened, by up to three times."""

Rounds = Sequence[Sequence[float]]
"""Times of one plan in a final, milliseconds: ``[round][run]``."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One contender against one incumbent.

    Attributes:
        faster: The contender is faster by more than the margin, beyond doubt.
        ratio: Median over the rounds of contender / incumbent; below 1 is faster.
        ci95: Interval of the ratio at the confidence asked for (95 % unless corrected for several contenders).
        rounds: Number of rounds it rests on.
        reason: The decision in words, with its numbers.
    """

    faster: bool
    ratio: float
    ci95: tuple[float, float]
    rounds: int
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a final.

    Attributes:
        winner: Name of the plan to use.
        best_single: The single platform with the lowest median in the final.
        is_single: The winner is ``best_single`` because no contender proved faster.
        decisions: Contender -> its decision against the single platform it did worst against.
        p50_ms: Plan -> median over the rounds of the rounds' medians.
        reason: Why, in words.
    """

    winner: str
    best_single: str
    is_single: bool
    decisions: Mapping[str, Decision]
    p50_ms: Mapping[str, float]
    reason: str


def final_rounds(
    p50_ms: Sequence[float], *, runs_per_round: int = DEFAULT_RUNS_PER_ROUND, budget_s: float = math.inf
) -> int:
    """How many rounds a final of plans with these medians needs; fixed before it begins.

    :data:`DEFAULT_ROUNDS` are enough against noise that changes from round to round. A scheduler's choice of cores or
    a neighbour's job lasts for a good part of a second, though, and a final of a fast model is over in less. So a final
    takes at least :data:`LEAST_FINAL_S`, or :data:`MAX_ROUNDS`.

    Args:
        p50_ms: Known medians of all plans in the final.
        budget_s: Most seconds it may take; it never brings the rounds under :data:`MIN_ROUNDS`.
    """
    round_s = sum(p50_ms) * runs_per_round / 1000
    if round_s <= 0:
        return MAX_ROUNDS
    wanted = min(max(DEFAULT_ROUNDS, math.ceil(LEAST_FINAL_S / round_s)), MAX_ROUNDS)
    return max(MIN_ROUNDS, int(min(wanted, budget_s / round_s)))


def decide(
    contender_rounds_ms: Rounds,
    incumbent_rounds_ms: Rounds,
    *,
    margin: float = DEFAULT_MARGIN,
    confidence: float = CONFIDENCE,
    lag_rounds: float = 0.0,
) -> Decision:
    """Is the contender faster by more than ``margin``, beyond doubt?

    Args:
        contender_rounds_ms: Its times ``[round][run]`` in milliseconds.
        incumbent_rounds_ms: The incumbent's times of the same rounds.
        lag_rounds: How much later in a round the contender ran, see :func:`~.statistics.paired_ratio`.

    Raises:
        ValueError: The rounds differ in number, are none, or hold no positive times.
    """
    found = paired_ratio(
        contender_rounds_ms, incumbent_rounds_ms, confidence=confidence, lag_rounds=lag_rounds
    )
    low, high, caution = _with_caution(found)
    numbers = (
        f"ratio {found.ratio:.3f}, {confidence * 100:g} % interval {low:.3f} to {high:.3f}"
        f" over {found.rounds} rounds"
    )
    if caution > 1:
        numbers += f" (widened {caution:.1f} times: rounds differ by {found.scatter * 100:.0f} %)"
    if found.rounds < MIN_ROUNDS:
        faster, reason = False, f"{found.rounds} rounds are too few to decide (at least {MIN_ROUNDS})"
    elif high < 1 - margin:
        faster, reason = True, f"faster by more than {margin * 100:g} %: {numbers}"
    elif low > 1:
        faster, reason = False, f"slower: {numbers}"
    else:
        faster, reason = False, f"not faster by more than {margin * 100:g} % beyond doubt: {numbers}"
    return Decision(faster, found.ratio, (low, high), found.rounds, reason)


def _with_caution(found: RatioInterval) -> tuple[float, float, float]:
    """The interval's ends, widened for a machine in a mood, and by how much."""
    if found.rounds >= SETTLED_ROUNDS:
        return found.low, found.high, 1.0
    caution = min(max(found.scatter / CALM_SCATTER, 1.0), MOST_CAUTION)
    low = found.ratio * (found.low / found.ratio) ** caution
    high = found.ratio * (found.high / found.ratio) ** caution
    return low, high, caution


def pick_winner(
    rounds_ms: Mapping[str, Rounds],
    singles: Sequence[str],
    *,
    margin: float = DEFAULT_MARGIN,
    confidence: float = CONFIDENCE,
    alternating: bool = True,
    order: Sequence[str] | None = None,
) -> Verdict:
    """The winner of a final of contenders and single platforms.

    Args:
        rounds_ms: Plan -> its times ``[round][run]``. Every plan that is not a single platform is a contender;
            contenders must have been chosen before the final began.
        singles: Names of the single-platform plans; a tie among them goes to the earlier one.
        alternating: The plans took turns at being first, as the agent lets them, so that none ran later than another on
            average. Otherwise they ran in the same order in every round, and a drift within the rounds is taken out.
        order: That order, with the plans that cannot win; by default the order of ``rounds_ms``.

    Raises:
        ValueError: There is no single platform, one is missing from ``rounds_ms``, or the rounds do not pair.
    """
    missing = [name for name in singles if name not in rounds_ms]
    if not singles or missing:
        raise ValueError(f"single platforms without rounds: {missing or 'none was named'}")
    p50_ms = {
        name: float(np.median([np.median(runs) for runs in rounds])) for name, rounds in rounds_ms.items()
    }
    best_single = min(singles, key=p50_ms.__getitem__)
    contenders = [name for name in rounds_ms if name not in singles]
    corrected = 1 - (1 - confidence) / max(1, len(contenders))
    ran = list(rounds_ms if order is None else order)
    position = {name: 0.0 if alternating else ran.index(name) / len(ran) for name in rounds_ms}
    decisions: dict[str, Decision] = {}
    for name in contenders:
        against = {
            single: decide(
                rounds_ms[name],
                rounds_ms[single],
                margin=margin,
                confidence=corrected,
                lag_rounds=position[name] - position[single],
            )
            for single in singles
        }
        # The hardest opponent decides: one not beaten, or else the one beaten by least.
        decisions[name] = max(against.values(), key=lambda found: (not found.faster, found.ci95[1]))
    proved = [name for name in contenders if decisions[name].faster]
    if not proved:
        why = "; ".join(f"{name}: {decisions[name].reason}" for name in contenders)
        return Verdict(
            best_single, best_single, True, decisions, p50_ms, why or "there is no other placement to compare"
        )
    winner = min(proved, key=p50_ms.__getitem__)
    return Verdict(winner, best_single, False, decisions, p50_ms, decisions[winner].reason)
