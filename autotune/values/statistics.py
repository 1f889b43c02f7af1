"""Statistics of timings and of qualities: medians with intervals, and the non-inferiority test.

Timings are skewed and sometimes bimodal. Intervals that assume a normal distribution are wrong for
them; the sign-test interval of the median holds.

Qualities are compared over paired seeds. The non-inferiority test does not ask for a significant
difference, which noise hides. It asks for evidence that the candidate is worse by no more than the
tolerance. It accepts at a few looks only, which share 5 %: a configuration that is worse by exactly
the tolerance is accepted with that risk in all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean, median, median_high, median_low, pstdev, stdev
from typing import Literal, NamedTuple

CONFIDENCE = 0.95
LOOKS = (3, 6, 12)
"""Numbers of seeds at which a configuration may be accepted.

Three show a spread. Each further look takes as many seeds again. Twelve halve the noise of three,
and halving it once more would take 36 more.
"""


class Level(NamedTuple):
    """Quantiles of a one-sided confidence level."""

    student: tuple[float, ...]
    """Quantiles of Student's t, for 1 to 11 degrees of freedom; scipy imports for a second."""
    normal: float


ONE_LOOK = Level(
    (6.3138, 2.92, 2.3534, 2.1318, 2.015, 1.9432, 1.8946, 1.8595, 1.8331, 1.8125, 1.7959), 1.6449
)
"""95 %, for one decision on the values."""
EACH_LOOK = Level(
    (15.8945, 4.8487, 3.4819, 2.9985, 2.7565, 2.6122, 2.5168, 2.449, 2.3984, 2.3593, 2.3281), 2.0537
)
"""98 %, for each of `LOOKS`. Looks at the same seeds agree, so three have 95 % in all, not 94 %."""
# One seed alone, which has no spread, rejects a loss above this many times the allowed one. After
# that, only seeds better than the baseline's, by half of the allowed on average, could accept.
_FAR_OFF = 5

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


def bounds(losses: Sequence[float], step: float = 0.0, level: Level = ONE_LOOK) -> Interval:
    """Return one-sided bounds of the mean loss, by Student's t; infinite for one seed.

    `step` is the resolution of the quality. A value rounded to steps has an error spread evenly
    over one step, whose standard deviation is step/sqrt(12). A loss is the difference of two such
    values, so that its own deviation is at least step/sqrt(6), however equal the losses look. This
    one is known and not estimated from the losses: it takes the quantile of the normal
    distribution.
    """
    if len(losses) < 2:  # noqa: PLR2004
        return -math.inf, math.inf
    # Beyond the table its last quantile is used, which is wider than the true one.
    quantile = level.student[min(len(losses) - 1, len(level.student)) - 1]
    spread = max(quantile * stdev(losses), level.normal * step / math.sqrt(6))
    half = spread / math.sqrt(len(losses))
    middle = mean(losses)  # not fmean: equal losses have exactly themselves as their mean
    return middle - half, middle + half


def decide(losses: Sequence[float], allowed: float, step: float = 0.0) -> Decision:
    """Decide on losses of quality, one per paired seed, positive for worse; `allowed` is the most.

    "undecided" means that further seeds are needed. `step` is the resolution of the quality. Losses
    are accepted at the last of `LOOKS` that they reach; they may be rejected at any time, which
    errs on the safe side.
    """
    look = max((seeds for seeds in LOOKS if seeds <= len(losses)), default=1)
    if bounds(losses[:look], step, EACH_LOOK)[1] <= allowed:
        return "accept"
    low, _ = bounds(losses, step)
    if low > allowed or (len(losses) == 1 and losses[0] > _FAR_OFF * allowed):
        return "reject"
    return "undecided"


def may_accept(losses: Sequence[float], allowed: float, step: float = 0.0) -> bool:
    """Return whether the last look accepts, if further losses have the mean and spread of these."""
    missing = max(0, LOOKS[-1] - len(losses))
    middle, away = mean(losses), pstdev(losses)
    coming = (middle - away, middle + away) * (missing // 2) + (middle,) * (missing % 2)
    return bounds((*losses, *coming), step, EACH_LOOK)[1] <= allowed
