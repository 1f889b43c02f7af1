"""Order statistics: the median, with an interval that assumes no distribution.

Timings are skewed and sometimes bimodal. Intervals that assume a normal distribution are wrong for
them; the sign-test interval of the median holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, median_high, median_low

CONFIDENCE = 0.95

Interval = tuple[float, float]


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
