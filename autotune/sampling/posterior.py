"""Posteriors of the speed of candidates, before and after they were timed again.

The best of many noisy timings looks better than it is. The surrogate's posterior from all trials
(`autotune.sampling.acquisition`) is much less noisy than a candidate's own timing, and rounds
refine it. It decides which candidates are confirmed and which go on; no result contains it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Default deviation of the logarithm of a timing: that of most machines.
_NOISE = 0.05
# Two posteriors that differ by more deviations than this are told apart.
_CLEARLY = 2.0


@dataclass(frozen=True, slots=True)
class Posterior:
    """Normal posterior of a configuration's log worth, up to a constant that all share."""

    mean: float = 0.0
    deviation: float = math.inf
    noise: float = _NOISE
    """Deviation of the logarithm of one more timing."""

    def after(self, mean: float, timings: int) -> Posterior:
        """Return the posterior after timings of this mean (product of two normal densities)."""
        before, then = self.deviation**-2, timings * self.noise**-2
        middle = mean if before == 0 else (before * self.mean + then * mean) / (before + then)
        return Posterior(middle, (before + then) ** -0.5, self.noise)

    def is_clearly_below(self, other: Posterior) -> bool:
        """Return whether this one is slower by more than two deviations of the difference."""
        return self.mean + _CLEARLY * math.hypot(self.deviation, other.deviation) < other.mean
