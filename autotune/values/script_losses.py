"""Losses of an unchanged script, as its processes report them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FIRST_STEPS = 10
"""First steps that are compared; settings of the model hold from the third one."""


@dataclass(frozen=True, slots=True)
class ObservedLoss:
    """Loss of an unchanged script: the tensors on which it calls `backward`."""

    source: str
    """Digest of the script and its arguments."""
    first: tuple[float, ...] = ()
    """Mean loss of each of the first steps, as far as they are finite."""
    backwards_per_step: float = 1.0
    doubt: str = ""
    """Reason why it cannot judge a training; empty if it can."""
    reach: tuple[float, ...] = ()
    """As that of `FirstLosses`."""


@dataclass(frozen=True, slots=True)
class FirstLosses:
    """Losses of a script's first optimizer steps, all finite."""

    losses: tuple[float, ...]
    """Mean over the backward passes of each step."""
    backwards_per_step: float
    reach: tuple[float, ...]
    """Distance that each parameter moved from the third to the tenth step; empty if unknown."""
    kind: Literal["first_losses"] = "first_losses"
