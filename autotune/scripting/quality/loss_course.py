"""Tell from the course of a script's loss whether it can judge a training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

from autotune.scripting.quality.losses import StepLoss

FIRST = 20
"""Fewest steps that show whether a loss falls."""
_PARTS = 4
# Standard errors by which the last quarter of the losses lies below the first one.
_BEYOND = 3.0


def falls(losses: Sequence[float]) -> bool:
    """Return True if the last quarter of the losses is below the first one, beyond their spread.

    A loss that falls at once spreads in its first quarter because it falls; then no loss of the
    last one reaches any of the first.
    """
    size = len(losses) // _PARTS
    if len(losses) < FIRST:
        return False
    first, last = losses[:size], losses[-size:]
    error = math.sqrt((variance(first) + variance(last)) / size)
    return max(last) < min(first) or fmean(first) - fmean(last) > _BEYOND * error


def fault_of(steps: Sequence[StepLoss]) -> str:
    """Return why these losses cannot judge a training; empty if they can.

    That they fall is another question, see `falls`.
    """
    if not any(step.losses for step in steps):
        return "it calls no backward whose loss could be seen"
    if any(not step.losses for step in steps):
        return "some of its optimizer steps come without a backward of their own"
    if not all(math.isfinite(step.value()) for step in steps):
        return "its training loss becomes NaN or infinite"
    return ""
