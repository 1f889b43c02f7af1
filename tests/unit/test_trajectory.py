"""Distances between the first steps of two trainings: their losses and their weights."""

from __future__ import annotations

import pytest
import torch

from autotune.numerics.trajectory import deviation, distances


@pytest.mark.parametrize(
    ("losses", "other_seed", "expected"),
    [
        ((4.0, 2.0, 1.0), (5.0, 1.0, 2.0), 0.0),
        # Off by 0.5, 0 and 1, where another seed is off by 1 each time.
        ((4.5, 2.0, 2.0), (5.0, 1.0, 2.0), 0.5),
        # Differences of either sign add up; they do not cancel.
        ((6.0, 0.0, 3.0), (5.0, 1.0, 0.0), 2.0),
        # Another seed changes nothing: a tenth of the mean loss, 7 / 3, is left for rounding.
        ((4.7, 2.0, 1.0), (4.0, 2.0, 1.0), 1.0),
    ],
)
def test_losses_are_held_against_what_another_seed_changes(
    losses: tuple[float, ...], other_seed: tuple[float, ...], expected: float
) -> None:
    assert deviation(losses, (4.0, 2.0, 1.0), other_seed, rounding=0.1) == pytest.approx(expected)


def test_losses_of_nothing_at_all_agree() -> None:
    nothing = (0.0, 0.0, 0.0)
    assert deviation(nothing, nothing, nothing, rounding=0.1) == 0
    assert deviation((0.0, 0.0, 1.0), nothing, nothing, rounding=0.1) == 1


def test_ways_are_compared_by_their_ends_and_by_their_lengths() -> None:
    def weights(x: float, y: float) -> dict[str, torch.Tensor]:
        return {"x": torch.tensor([x]), "y": torch.tensor([[y]])}

    start, end = weights(1.0, 1.0), weights(1.0, 3.0)
    same, half, aside, nowhere = (
        distances(start, end, other) for other in (end, weights(1, 2), weights(3, 1), start)
    )
    assert (same.path, same.reach) == (0, 0)
    assert (half.path, half.reach) == (0.5, 0.5)
    assert (aside.path, aside.reach) == (pytest.approx(2**0.5), 0)
    assert (nowhere.path, nowhere.reach) == (1, 1)
    assert distances(start, start, start).path == 0
