"""Knobs of the optimizer: how many batches a step takes, how the update is launched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.knobs.base import Integers, Knob, OneOf, Setup, Value, powers_of_two
from autotune.values.machine import Machine
from autotune.values.workload_facts import WorkloadFacts

_ARGUMENTS: Mapping[Value, Mapping[str, bool]] = {
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "forloop": {"foreach": False},
}


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


class OptimizerImpl(Knob):
    """The implementation of the update, of those that torch's optimizers have."""

    name = "optimizer_impl"
    default = None
    values = OneOf((None, "foreach", "fused", "forloop"))
    effect = "numerics"
    summary = (
        "Update all parameters in one kernel (fused), in a few for all (foreach) or in several for "
        "each (forloop); null is PyTorch's choice: foreach on CUDA, forloop on a CPU."
    )
    pays = "fused: models with many small parameters, whose update is a visible part of a step."
    hurts = "A few optimizers and parameter types lack one; foreach takes memory of the gradients."
    call = "torch.optim.AdamW(..., fused=True), or foreach=True or False"
    source = "https://docs.pytorch.org/docs/stable/optim.html"

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        if facts.optimizer_options:
            return None
        return "build_optimizer takes no options; write build_optimizer(parameters, **options)"

    def optimizer_kwargs(self, value: Value) -> Mapping[str, Any]:
        return _ARGUMENTS.get(value, {})

    def read_back(self, setup: Setup) -> Value:
        found = {_implementation(group) for group in setup.optimizer.param_groups}
        return found.pop() if len(found) == 1 else None


def _implementation(group: Mapping[str, Any]) -> Value:
    """Return the implementation of a group of parameters; None if torch chooses."""
    fused, foreach = group.get("fused"), group.get("foreach")
    if fused or foreach:
        return "fused" if fused else "foreach"
    # torch chooses only if it was told nothing at all.
    return None if fused is None and foreach is None else "forloop"


OPTIMIZER_KNOBS: tuple[Knob, ...] = (AccumulationSteps(), OptimizerImpl())
