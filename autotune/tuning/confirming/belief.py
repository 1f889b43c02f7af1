"""What is believed of how fast a configuration is, before and after it was timed again.

The best of many noisy timings looks better than it is. What all trials together tell of one
(`autotune.tuning.sampling.promise`) is much less noisy than its own timing, and the rounds of a
contest add to it. That decides who is put to the test and who goes on; nothing of it is emitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.tuning.confirming.rounds import Contestant, Duel

# Of the logarithm of a timing, where nobody tells: that of most machines.
_NOISE = 0.05
# Two that differ by more than so many deviations are told apart.
_CLEARLY = 2.0


@dataclass(frozen=True, slots=True)
class Belief:
    """The logarithm of what a configuration is worth: normal, up to a constant that all share."""

    mean: float = 0.0
    deviation: float = math.inf
    noise: float = _NOISE
    """Deviation of one more timing."""

    def after(self, mean: float, timings: int) -> Belief:
        """With timings that have this mean (the product of two normal densities)."""
        before, then = self.deviation**-2, timings * self.noise**-2
        middle = mean if before == 0 else (before * self.mean + then * mean) / (before + then)
        return Belief(middle, (before + then) ** -0.5, self.noise)

    def is_clearly_below(self, other: Belief) -> bool:
        """Whether the two are told apart, with this one the slower."""
        return self.mean + _CLEARLY * math.hypot(self.deviation, other.deviation) < other.mean


Beliefs = Mapping[Contestant, Belief]
"""What the search tells of those who take part in a contest."""


def beliefs_after(before: Beliefs, duels: Mapping[Contestant, Duel]) -> dict[Contestant, Belief]:
    """What search and rounds together tell of the candidates, with the baseline at about 0."""
    shown = {one: math.log(duel.ratio) for one, duel in duels.items()}
    known = [one for one in duels if one in before]
    # The search measured rates, a contest ratios: on average over all, both say the same.
    origin = _mean([shown[one] - before[one].mean for one in known])
    return {
        one: _moved(before.get(one, Belief()), origin).after(shown[one], len(duel.ratios))
        for one, duel in duels.items()
    }


def _moved(belief: Belief, by: float) -> Belief:
    return Belief(belief.mean + by, belief.deviation, belief.noise)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
