"""The knob of gradient accumulation: an optimizer step over several batches."""

from __future__ import annotations

from autotune.knobs.base import Integers, Knob, Setup, Value, powers_of_two
from autotune.values.machine import Machine


class AccumulationSteps(Knob):
    """Batches whose gradients are added up before the optimizer steps."""

    name = "accumulation_steps"
    default = 1
    values = Integers(1, 1024)
    effect = "statistics"
    summary = (
        "Batches in an optimizer step: each loss is divided by their number, and the gradients add "
        "up. batch_size x accumulation_steps is the effective batch."
    )
    pays = (
        "Where the effective batch does not fit into memory at once: smaller batches need less, "
        "and the optimizer still steps on the same samples."
    )
    hurts = (
        "Smaller batches use the device less well. BatchNorm, means over tokens and contrastive "
        "losses compute something else in parts."
    )
    call = "(loss / accumulation_steps).backward() for each batch, then optimizer.step()"
    source = "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation"

    def suggestions(self, machine: Machine) -> tuple[Value, ...]:
        return powers_of_two(1, 8)

    def read_back(self, setup: Setup) -> Value:
        return setup.accumulation_steps


ACCUMULATION_KNOBS: tuple[Knob, ...] = (AccumulationSteps(),)
