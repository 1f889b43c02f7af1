"""What a search that comes no further has hardly tried.

A surrogate that has seen a value do badly beside others may never ask for it again, though beside
those that it has found since it would do well. So the best configuration is tried with the values
that were tried least.
"""

from __future__ import annotations

import numpy as np

from autotune.tuning.sampling.promise import Seen
from autotune.tuning.sampling.surrogate import Array, Indices

GAIN = 1.01
"""Less is what the best of many noisy timings rises by anyway."""


def best_row(seen: Seen) -> Indices | None:
    """The fastest feasible trial's, (knobs,); None where there is none."""
    rates = _feasible_rates(seen)
    return seen.rows[int(np.argmax(rates))] if rates.any() else None


def trials_without_gain(seen: Seen) -> int:
    """How many trials ago the best rate last rose by a percent."""
    rates, best, last = _feasible_rates(seen), 0.0, 0
    for place, rate in enumerate(rates):
        if rate > GAIN * best:
            best, last = float(rate), place
    return len(rates) - 1 - last


def times_tried(rows: Indices, best: Indices, seen: Seen) -> Array:
    """How often the value was tried in which each of the rows differs from the best, (rows,).

    Of several such values, the one that was tried least counts; of none, all trials.
    """
    counts = np.full(len(rows), float(len(seen.rows)))
    for column in range(rows.shape[1]):
        tried = (seen.rows[:, column] == rows[:, [column]]).sum(axis=1)
        differs = rows[:, column] != best[column]
        counts = np.where(differs, np.minimum(counts, tried), counts)
    return counts


def _feasible_rates(seen: Seen) -> Array:
    return np.where(np.array(seen.feasible, dtype=bool), seen.rates, 0.0)
