"""Distances between the first steps of two trainings."""

import pytest
import torch

from autotune.configuration.training_config import TrainingConfig
from autotune.numerics.trajectory import Snapshot, distances, epsilon


def at(x, y, buffer=0.0):
    weights = {"x": torch.tensor([x]), "y": torch.tensor([[y]])}
    return Snapshot(weights, {"mean": torch.tensor([buffer])})


def test_trajectories_are_compared_by_their_ends_and_by_their_lengths():
    start, end = at(1.0, 1.0), at(1.0, 3.0)
    same, half, aside, nowhere = (
        distances(start, end, other) for other in (end, at(1, 2), at(3, 1), start)
    )
    assert (same.path, same.reach) == (0, 0)
    assert (half.path, half.reach) == (0.5, 0.5)
    assert (aside.path, aside.reach) == (pytest.approx(2**0.5), 0)
    assert (nowhere.path, nowhere.reach) == (1, 1)
    assert distances(start, start, start).path == 0


def test_buffers_that_stay_behind_are_told_beside_weights_that_agree():
    start, end = at(1.0, 1.0, buffer=5.0), at(1.0, 3.0, buffer=9.0)
    behind = distances(start, end, at(1.0, 3.0, buffer=6.0))
    assert (behind.path, behind.reach, behind.buffers) == (0, 0, 0.75)


@pytest.mark.parametrize(
    ("settings", "bits"),
    [
        ({}, 10),
        ({"amp_dtype": "float16"}, 10),
        ({"float32_matmul_precision": "high"}, 10),
        ({"float32_matmul_precision": "medium"}, 7),
        ({"amp_dtype": "bfloat16"}, 7),
    ],
    ids=str,
)
def test_the_shortest_format_tells_how_much_rounding_may_change(settings, bits):
    assert epsilon(TrainingConfig.of(settings)) == 2.0**-bits
