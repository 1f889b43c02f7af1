"""When another seed of what a search follows is worth its time.

A search follows its best trial, though one seed of accuracy proves little. Proving every lead at
once takes minutes where the lead changes often; never proving one may cost the whole search. So a
further seed is probed once the search has relied on a kind of training for as long as that seed
takes: that costs at most twice what it would cost who knew beforehand how long each lead will last
(the ski rental problem; Karlin et al., Competitive snoopy caching, Algorithmica 3, 1988).
"""

from __future__ import annotations

from collections import defaultdict


class Reliance:
    """Seconds of trials that relied on each kind of training since its last seed was probed."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def follow(self, trained_as: str, seconds: float) -> None:
        """A trial took so long while a trial of this kind of training was the best."""
        self._seconds[trained_as] += seconds

    def pays(self, trained_as: str, price: float) -> bool:
        """Whether it was relied on for so many seconds; then they count no more."""
        if self._seconds[trained_as] < price:
            return False
        self._seconds[trained_as] -= price
        return True
