"""Probability that a configuration fits into memory, from the peaks of the trials.

Whether a trial fitted says little of one with twice its batch; how much of the limit it took says
much. A Gaussian process therefore predicts the logarithm of the peak, about a trend in the batch
size. A trial that ran out of memory has no peak. It gets the mean of what the others predict above
the limit.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.knobs import KNOBS, knob_named
from autotune.sampling.encoding import Encoding
from autotune.sampling.surrogate import Array, Indices, Surrogate, normal_below

RAN_OUT = np.inf
"""Peak of a trial that ran out of memory."""
# Prior mean and deviation of what a doubling of the batch adds to the logarithm: all of log 2 where
# activations take the memory, nothing where weights do.
_DOUBLING, _DOUBTS = 0.5, 0.2
# Prior effect of each knob on the logarithm where it is not at its default, and its deviation: a
# judgement, which the first few trials outweigh.
_EXPECTED = {
    "batch_size": (0.0, 0.3),
    "amp_dtype": (-0.3, 0.2),
    "compile_mode": (-0.1, 0.2),
    "activation_checkpointing": (-0.5, 0.4),
    "activation_memory_budget": (-0.3, 0.3),
    "sdpa_backend": (0.0, 0.2),
    "sharding": (-0.5, 0.4),
}
_ELSE, _OWN = (0.0, 0.05), (0.0, 0.3)
# Deviation of a trial from the trend.
_NOISE = 0.3


class MemoryModel:
    """A surrogate of the logarithm of the peak memory over its limit."""

    def __init__(self, encoding: Encoding, rows: Indices, peaks: Array) -> None:
        """Fit to the configurations of trials, shape (trials, knobs).

        `peaks` is the peak memory over the limit, shape (trials,): NaN where unknown, or `RAN_OUT`.
        """
        self._encoding = encoding
        self._surrogate: Surrogate | None = None
        # A device on which nothing was allocated shows nothing.
        known = np.isfinite(peaks) & (peaks > 0)
        if not known.any():
            return
        self._own = rows[known][0]
        logs = np.log(peaks[known])
        # The effect of a batch doubling, by Bayesian linear regression.
        doublings, prior = self._doublings(rows[known]), (_NOISE / _DOUBTS) ** 2
        gain = doublings @ (logs - logs[0])
        self._slope = float((_DOUBLING * prior + gain) / (prior + doublings @ doublings))
        self._fit(rows[known], logs)
        ran_out = np.isposinf(peaks)
        if ran_out.any():
            # The mean of each where it is above the limit: a truncated normal's.
            mean, deviation = self._predicted(rows[ran_out])
            z = mean / deviation
            density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
            more = mean + deviation * density / np.maximum(normal_below(z), 1e-12)
            self._fit(np.concatenate([rows[known], rows[ran_out]]), np.concatenate([logs, more]))

    def fits(self, rows: Indices) -> Array:
        """Return the probability that each row fits, shape (rows,)."""
        if self._surrogate is None:
            return np.ones(len(rows))
        mean, deviation = self._predicted(rows)
        return normal_below(-mean / np.hypot(deviation, self._surrogate.noise))

    def _fit(self, rows: Indices, logs: Array) -> None:
        rest = logs - self._trend(rows)
        self._level = float(rest[0])
        deviations = [_expected(name)[1] for name in self._encoding.values]
        self._surrogate = Surrogate(self._encoding.kernels, np.array(deviations))
        self._surrogate.fit(rows, rest - self._level)

    def _predicted(self, rows: Indices) -> tuple[Array, Array]:
        """Return the mean and deviation of the logarithm, each (rows,)."""
        assert self._surrogate is not None
        mean, deviation = self._surrogate.predict(rows)
        return mean + self._level + self._trend(rows), deviation

    def _trend(self, rows: Indices) -> Array:
        """Return the prior mean of the logarithm, up to a constant, shape (rows,)."""
        trend = self._slope * self._doublings(rows)
        for column, (name, values) in enumerate(self._encoding.values.items()):
            effect, default = _expected(name)[0], knob_named(name).default
            trend += effect * np.array([value != default for value in values])[rows[:, column]]
        return trend

    def _doublings(self, rows: Indices) -> Array:
        return self._encoding.doublings_of("batch_size", rows, self._own)


def _expected(name: str) -> tuple[float, float]:
    return _EXPECTED.get(name, _ELSE if name in KNOBS else _OWN)
