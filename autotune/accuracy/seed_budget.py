"""Seed budget of incumbents: when a further accuracy seed is worth its time.

A search follows its incumbent, though one seed shows little of its accuracy. Validating every
incumbent at once takes minutes if they change often; a wrong incumbent may cost the whole search.
An incumbent therefore gets a further seed after trials of as many seconds as the seed takes. This
costs at most twice as much as with known lifetimes of all incumbents (the ski rental problem;
Karlin et al., Competitive snoopy caching, Algorithmica 3, 1988).
"""

from __future__ import annotations

from collections import defaultdict


class SeedBudget:
    """Seconds of trials run under incumbents of equivalent training, since their last seed.

    `training_equivalent` is the text that equivalent trainings share.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def follow(self, training_equivalent: str, seconds: float) -> None:
        """Add the seconds of a trial that ran while the incumbent was of this training."""
        self._seconds[training_equivalent] += seconds

    def pays(self, training_equivalent: str, price: float) -> bool:
        """Spend `price` seconds; return False and spend nothing if there are fewer."""
        if self._seconds[training_equivalent] < price:
            return False
        self._seconds[training_equivalent] -= price
        return True
