"""Values that a search has hardly tried, for proposals when it makes no progress.

A surrogate may never ask again for a value that did badly in one combination, though it would do
well in another. The best configuration is therefore tried with the least tried values.
"""

from __future__ import annotations

import numpy as np

from autotune.sampling.acquisition import Observations
from autotune.sampling.surrogate import Array, Indices

GAIN = 1.01
"""Least ratio that counts as a gain; the best of many noisy timings rises by less anyway."""


def best_row(seen: Observations) -> Indices | None:
    """Return the row of the fastest feasible trial, shape (knobs,); None if there is none."""
    rates = _feasible_rates(seen)
    return seen.rows[int(np.argmax(rates))] if rates.any() else None


def trials_without_gain(seen: Observations) -> int:
    """Return the number of trials since the best feasible rate last rose by a percent."""
    rates, best, last = _feasible_rates(seen), 0.0, 0
    for place, rate in enumerate(rates):
        if rate > GAIN * best:
            best, last = float(rate), place
    return len(rates) - 1 - last


def times_tried(rows: Indices, best: Indices, seen: Observations) -> Array:
    """Return how often the value in which each row differs from `best` was tried, shape (rows,).

    The least tried value counts if there are several. A row equal to `best` gets the number of all
    trials.
    """
    counts = np.full(len(rows), float(len(seen.rows)))
    for column in range(rows.shape[1]):
        tried = (seen.rows[:, column] == rows[:, [column]]).sum(axis=1)
        differs = rows[:, column] != best[column]
        counts = np.where(differs, np.minimum(counts, tried), counts)
    return counts


def _feasible_rates(seen: Observations) -> Array:
    return np.where(np.array(seen.feasible, dtype=bool), seen.rates, 0.0)
