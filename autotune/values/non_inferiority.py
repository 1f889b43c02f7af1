"""Non-inferiority test: accept only if the mean loss of quality is provably within the tolerance.

The test does not ask for a significant difference, which noise hides. It asks for evidence that the
candidate is worse by no more than the tolerance. Bounds are one-sided 95 % bounds of Student's t
over paired seeds. Repeated looks are not corrected for: a configuration that is worse by exactly
the tolerance is accepted with a risk somewhat above 5 %.
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
# One seed alone, which has no spread, rejects only a loss above this many times the tolerance.
_FAR_OFF = 5


def bounds(losses: Sequence[float]) -> tuple[float, float]:
    """Return one-sided 95 % bounds of the mean loss; both are infinite for a single seed."""
    if len(losses) < 2:  # noqa: PLR2004
        return -math.inf, math.inf
    # Beyond the table its last quantile is used, which is wider than the true one.
    quantile = _T95[min(len(losses) - 1, len(_T95)) - 1]
    half = quantile * stdev(losses) / math.sqrt(len(losses))
    middle = mean(losses)  # not fmean: equal losses have exactly themselves as their mean
    return middle - half, middle + half


def decide(losses: Sequence[float], allowed: float) -> Decision:
    """Decide on losses of quality, one per paired seed, positive for worse; `allowed` is the most.

    "undecided" means that further seeds are needed.
    """
    low, high = bounds(losses)
    if high <= allowed:
        return "accept"
    if low > allowed or (len(losses) == 1 and losses[0] > _FAR_OFF * allowed):
        return "reject"
    return "undecided"
