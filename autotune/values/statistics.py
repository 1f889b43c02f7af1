"""Statistics of timings and of qualities: medians with intervals, and the non-inferiority test.

Timings are skewed and sometimes bimodal. Intervals that assume a normal distribution are wrong for
them; the sign-test interval of the median holds.

Qualities are compared over paired seeds. The non-inferiority test does not ask for a significant
difference, which noise hides. It asks for evidence that the candidate is worse by no more than the
tolerance. Repeated looks are not corrected for: a configuration that is worse by exactly the
tolerance is accepted with a risk somewhat above 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean, median, median_high, median_low, stdev
from typing import Literal

CONFIDENCE = 0.95
# 95 % quantiles of Student's t for 1 to 5 degrees of freedom (NIST/SEMATECH e-Handbook of
# Statistical Methods, 1.3.6.7.2). A table, because scipy takes a second to import.
_T95 = (6.3138, 2.9200, 2.3534, 2.1318, 2.0150)
# One seed alone, which has no spread, rejects only a loss above this many times the tolerance and
# the baseline's own spread.
_FAR_OFF = 5

_NORMAL95 = 1.6449  # of the normal distribution
# Steps below this share of the greatest quality are not looked for: there are none to be found
# between rounding errors, and they are small beside 1 %.
_LEAST_STEP = 1e-4

Interval = tuple[float, float]
Decision = Literal["accept", "reject", "undecided"]


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the interval [y(k), y(n+1-k)] that holds the true median with this confidence.

    k is the largest rank whose binomial tail 2*P(Bin(n, 1/2) < k) stays within 1 - confidence: the
    sign test inverted. With fewer than six values no such rank exists at 95 %, and the whole range
    is returned, although its confidence is lower.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("median_interval needs at least one value")
    ordered = sorted(values)
    n = len(ordered)
    rank, tail = 0, 0.0
    while rank < n // 2:
        tail += math.comb(n, rank) / 2**n
        if 2 * tail > 1 - confidence:
            break
        rank += 1
    lowest = max(rank, 1) - 1
    return ordered[lowest], ordered[n - 1 - lowest]


def log_median(values: Sequence[float]) -> float:
    """Return the median on a log scale: for an even count, the geometric mean of the middle two.

    Raises:
        ValueError: no values.
    """
    return math.sqrt(median_low(values) * median_high(values))


def relative_half_width(values: Sequence[float]) -> float:
    """Return half the width of the median's 95 % interval, relative to the median."""
    low, high = median_interval(values)
    return (high - low) / (2 * median(values))


def resolution(qualities: Sequence[float]) -> float:
    """Return the greatest step of which all differences between the qualities are multiples.

    An accuracy over 360 samples moves by steps of 1/360. Of a continuous quality the step is
    negligible; it is 0 if all qualities are the same. By Euclid's algorithm.
    """
    least = _LEAST_STEP * max(map(abs, qualities), default=0.0)
    step = 0.0
    for lower, higher in pairwise(sorted(qualities)):
        rest = higher - lower
        while rest > least:
            step, rest = rest, step % rest
            rest = min(rest, step - rest)  # just below a multiple is one too
    return step


def bounds(losses: Sequence[float], step: float = 0.0) -> tuple[float, float]:
    """Return one-sided 95 % bounds of the mean loss, by Student's t; infinite for one seed.

    `step` is the resolution of the quality. A value rounded to steps has an error spread evenly
    over one step, whose standard deviation is step/sqrt(12). A loss is the difference of two such
    values, so that its own deviation is at least step/sqrt(6), however equal the losses look. This
    one is known and not estimated from the losses: it takes the quantile of the normal
    distribution.
    """
    if len(losses) < 2:  # noqa: PLR2004
        return -math.inf, math.inf
    # Beyond the table its last quantile is used, which is wider than the true one.
    quantile = _T95[min(len(losses) - 1, len(_T95)) - 1]
    spread = max(quantile * stdev(losses), _NORMAL95 * step / math.sqrt(6))
    half = spread / math.sqrt(len(losses))
    middle = mean(losses)  # not fmean: equal losses have exactly themselves as their mean
    return middle - half, middle + half


def decide(
    losses: Sequence[float], allowed: float, spread: float = 0.0, step: float = 0.0
) -> Decision:
    """Decide on losses of quality, one per paired seed, positive for worse; `allowed` is the most.

    "undecided" means that further seeds are needed. `spread` is the standard deviation of the
    baseline's quality over seeds, the only one that is known where there is one loss. `step` is the
    resolution of the quality.
    """
    low, high = bounds(losses, step)
    if high <= allowed:
        return "accept"
    if low > allowed or (len(losses) == 1 and losses[0] > _FAR_OFF * max(allowed, spread)):
        return "reject"
    return "undecided"
