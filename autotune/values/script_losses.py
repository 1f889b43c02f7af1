"""Losses of an unchanged script, as its processes report them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FIRST_STEPS = 10
"""First steps that are compared."""
SETTLED_STEP = 3
"""The first of them in which all settings are in force."""
LOOK_SECONDS = 30.0
"""Seconds for which a script's loss is watched at most until it has fallen."""
LOOK_SHARE = 1 / 10
"""Share of the time budget that this look may take."""


def no_fall(steps: int, seconds: float | None) -> str:
    """Return the doubt in a loss that did not fall in so many steps.

    `seconds` is for how long it was watched; None if the script ended by itself.
    """
    doubt = f"its training loss did not fall beyond its spread in {steps} steps"
    if seconds is None or seconds >= LOOK_SECONDS:
        return doubt
    return (
        f"{doubt} (a longer --time-budget in another study, --study NAME, may watch it for longer)"
    )


@dataclass(frozen=True, slots=True)
class FirstSums:
    """Sums that tell tensors of a script's first steps; each empty where it is not known.

    Their distance from another run's, relative to their size, estimates how far the tensors are
    apart.
    """

    gradients: tuple[float, ...] = ()
    """Gradients of the first step, in which only settings that hold from the start are in force."""
    update: tuple[float, ...] = ()
    """Changes that the optimizer makes to the parameters in the first of three steps that moves
    them."""
    settled_gradients: tuple[float, ...] = ()
    """Gradients of step `SETTLED_STEP`."""


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
    sums: FirstSums = FirstSums()
    """As those of `FirstLosses`; empty if the loss cannot be compared."""
    fell_after: int | None = None
    """Samples after which it was seen to have fallen; None if it was not."""


@dataclass(frozen=True, slots=True)
class FirstLosses:
    """Losses of a script's first optimizer steps, all finite."""

    losses: tuple[float, ...]
    """Mean over the backward passes of each step."""
    backwards_per_step: float
    reach: tuple[float, ...]
    """Distance that each parameter moved from the third to the tenth step; empty if unknown."""
    sums: FirstSums = FirstSums()
    kind: Literal["first_losses"] = "first_losses"
