"""Noisy timings of many configurations are shrunk towards the known truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.configuration.training_config import TrainingConfig
from benchmarks.shrinkage import Array, shrunk

CONFIGS = [
    TrainingConfig.of({"batch_size": b, "num_workers": w, "num_threads": t, "optimizer_impl": f})
    for b, w, t, f in itertools.product((8, 16, 32, 64, 128), (0, 1, 2, 3), (1, 2), (None, "fused"))
]


def truth(alone: float) -> Array:
    """Effects of knobs and of one pair of them, and of each configuration `alone`."""
    noise = np.random.default_rng(1)
    knobs = [
        0.15 * np.log2(int(c["batch_size"] or 1)) - 0.1 * int(c["num_workers"] or 0)
        for c in CONFIGS
    ]
    pairs = [0.3 * (c["num_threads"] == 2 and c["num_workers"] == 0) for c in CONFIGS]
    return np.asarray(np.array(knobs) + pairs + alone * noise.normal(size=len(CONFIGS)))


def timed(true: Array, seed: int, drift: float = 0.1, noise: float = 0.06) -> Array:
    """Timings in the order of CONFIGS, which a drift and noise disturb."""
    random = np.random.default_rng(seed)
    steps = random.normal(size=len(true))
    drifts = [steps[0]]
    for step in steps[1:]:
        drifts.append(0.9 * drifts[-1] + math.sqrt(1 - 0.9**2) * step)
    return np.asarray(true + drift * np.array(drifts) + noise * random.normal(size=len(true)))


def shuffled(seed: int) -> tuple[list[TrainingConfig], NDArray[np.int64]]:
    order = np.random.default_rng(100 + seed).permutation(len(CONFIGS))
    return [CONFIGS[place] for place in order], order


def error(found: Array, true: Array) -> float:
    return float(np.sqrt(np.mean((found - true) ** 2)))


@pytest.mark.parametrize("alone", [0.0, 0.03])
def test_it_is_half_as_far_from_the_truth_as_the_timings(alone: float) -> None:
    missed, timings_missed = [], []
    for seed in range(5):
        configs, order = shuffled(seed)
        true = truth(alone)[order]
        timings = timed(true, seed)
        missed.append(error(shrunk(configs, timings)[0], true))
        timings_missed.append(error(timings, true))
    assert np.mean(missed) < 0.5 * np.mean(timings_missed)


def too_fast(found: Array, true: Array) -> float:
    """By how much the fastest looks faster, beside the mean, than it is."""
    best = found.argmax()
    return float((found[best] - found.mean()) - (true[best] - true.mean()))


def test_the_fastest_is_not_the_luckiest() -> None:
    flattered, fair = [], []
    for seed in range(8):
        configs, order = shuffled(seed)
        true = truth(0.0)[order]
        timings = timed(true, seed)
        found = shrunk(configs, timings)[0]
        flattered.append(too_fast(timings, true))
        fair.append(too_fast(found, true))
    assert np.mean(flattered) > 0.05
    assert abs(np.mean(fair)) < 0.03


def test_a_drift_is_told_from_the_configurations() -> None:
    configs, order = shuffled(0)
    true = truth(0.0)[order]
    slower = np.where(np.arange(len(true)) < len(true) // 2, 0.0, -0.3)
    noise = 0.01 * np.random.default_rng(0).normal(size=len(true))
    assert error(shrunk(configs, true + slower + noise)[0], true - 0.15) < 0.06
