"""Whether a loss of quality over paired seeds is provably within what is allowed.

The question is never "is there a significant difference", which noise answers with no, but "is the
candidate worse by no more than this", which noise leaves open. Bounds are one-sided, at 95 %, of
Student's t; a sequence of looks is not corrected for, so the risk of accepting a configuration
that is worse by exactly what is allowed is somewhat above 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Literal

Decision = Literal["accept", "reject", "undecided"]

# 95 % quantiles of Student's t for 1 to 5 degrees of freedom (NIST/SEMATECH e-Handbook of
# Statistical Methods, 1.3.6.7.2). A table, because scipy takes a second to import.
_T95 = (6.3138, 2.9200, 2.3534, 2.1318, 2.0150)
# One seed alone, which has no spread, rejects only what is this many times the allowed loss.
_FAR_OFF = 5


def bounds(losses: Sequence[float]) -> tuple[float, float]:
    """One-sided 95 % bounds of the mean loss; both are infinite for a single seed."""
    if len(losses) < 2:  # noqa: PLR2004
        return -math.inf, math.inf
    # Beyond the table the last quantile is too wide, never too narrow.
    quantile = _T95[min(len(losses) - 1, len(_T95)) - 1]
    half = quantile * stdev(losses) / math.sqrt(len(losses))
    middle = mean(losses)  # not fmean: equal losses have exactly themselves as their mean
    return middle - half, middle + half


def decide(losses: Sequence[float], allowed: float) -> Decision:
    """What losses of quality, one per paired seed and positive for worse, prove."""
    low, high = bounds(losses)
    if high <= allowed:
        return "accept"
    if low > allowed or (len(losses) == 1 and losses[0] > _FAR_OFF * allowed):
        return "reject"
    return "undecided"
