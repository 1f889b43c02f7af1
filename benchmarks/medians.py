"""Medians of ratios, with intervals from order statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median_high, median_low

from autotune.values.statistics import CONFIDENCE, Interval


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
