"""What a gate's numbers are worth."""

from __future__ import annotations

import pytest

from autotune.outcome import Gated
from autotune.tuning.gates import gate_fault
from scripted_runner import agreeing


@pytest.mark.parametrize(
    "found",
    [
        agreeing(),
        agreeing(gradient_error=9e-5),
        # Three times the rounding of eager code, as for compiled code in PyTorch's own tests.
        agreeing(gradient_error=0.03, reference_gradient_error=0.01),
        agreeing(loss_error=0.03, reference_loss_error=0.01),
        agreeing(gradient_error=9e-4, in_double=False),
        agreeing(gradient_error=0.9, loss_error=0.5, seed_spread=0.95),
        agreeing(update_error=9e-4),
        # Another algorithm for a convolution: far less than what another batch changes.
        agreeing(gradient_error=0.033, reference_gradient_error=0.008, batch_spread=1.4),
    ],
    ids=str,
)
def test_rounding_passes(found: Gated) -> None:
    assert gate_fault(found, shorter_numbers=False) is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (agreeing(gradient_error=0.31), "accuracy: gradients differ from float64 by 31 %"),
        (
            agreeing(gradient_error=0.002, batch_spread=0.03, in_double=False),
            "accuracy: gradients differ from float32 by 0.2 %",
        ),
        (
            agreeing(gradient_error=0.04, reference_gradient_error=0.01),
            "accuracy: gradients differ from float64 by 4 %",
        ),
        (agreeing(loss_error=0.05), "accuracy: the loss differs from float64 by 5 %"),
        (
            agreeing(update_error=0.5),
            "accuracy: the optimizer's update differs from the unfused one by 50 %",
        ),
    ],
    ids=str,
)
def test_more_than_rounding_is_named(found: Gated, reason: str) -> None:
    fault = gate_fault(found, shorter_numbers=False)
    assert fault is not None
    assert fault.reason == reason
    assert 0 < fault.margin <= 1


@pytest.mark.parametrize(
    ("found", "passes"),
    [
        (agreeing(gradient_error=0.1, gradient_cosine=0.995), True),
        (agreeing(gradient_error=0.3, gradient_cosine=0.95), False),
        # Off by less than half of what the next batch would change: the probe has the last word.
        (agreeing(gradient_error=0.3, gradient_cosine=0.95, batch_spread=1.2), True),
        (agreeing(gradient_error=0.9, gradient_cosine=0.55, batch_spread=1.4), False),
        (agreeing(gradient_error=0.9, gradient_cosine=0.55, seed_spread=1.0), True),
        (agreeing(loss_error=0.05, gradient_cosine=0.999), True),
        (agreeing(update_error=0.5), False),
    ],
    ids=str,
)
def test_shorter_numbers_are_judged_by_where_the_gradients_point(
    found: Gated, passes: bool
) -> None:
    assert (gate_fault(found, shorter_numbers=True) is None) == passes


def test_the_margin_is_graded_and_bounded() -> None:
    margins = []
    for error in (0.001, 0.2, 7.0):
        fault = gate_fault(agreeing(gradient_error=error, batch_spread=0.01), shorter_numbers=False)
        assert fault is not None
        margins.append(fault.margin)
    assert margins == [0.01, 0.2, 1.0]
