"""What a knob is: one tunable setting, how it is applied and how it is read back.

`Knob` is a null object: every hook does nothing, a knob overrides what it changes. Hooks import
torch inside themselves, so that the parent process can load every knob without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from autotune.machine import Machine
from autotune.workload_facts import WorkloadFacts

if TYPE_CHECKING:
    import torch
    from torch import nn

Value = bool | int | str | None
Effect = Literal["exact", "numerics", "statistics"]
"""What a knob may change in the trained model: nothing, rounding, or the course of training."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """A few values by name."""

    options: tuple[Value, ...]

    def fault(self, value: object) -> str | None:
        """What is wrong with `value`, or None; 1 is not True here."""
        if any(type(value) is type(option) and value == option for option in self.options):
            return None
        return f"expected {' or '.join(map(spelled, self.options))}"


@dataclass(frozen=True, slots=True)
class Integers:
    """Whole numbers from `low` to `high`, and null where that means something."""

    low: int
    high: int
    nullable: bool = False

    def fault(self, value: object) -> str | None:
        """What is wrong with `value`, or None; True is not 1 here."""
        if value is None and self.nullable:
            return None
        if type(value) is int and self.low <= value <= self.high:
            return None
        return f"expected an integer from {self.low} to {self.high}" + (
            " or null" if self.nullable else ""
        )


class Setup(Protocol):
    """A training loop made ready, as `read_back` sees it."""

    @property
    def device(self) -> torch.device:
        """Where the model is."""

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that updates it."""

    @property
    def loader(self) -> torch.utils.data.DataLoader[Any]:
        """The loader that feeds it."""

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """The gradient scaler, disabled where nothing is scaled."""

    def forward_context(self) -> AbstractContextManager[None]:
        """What the forward pass runs under."""

    def transfer(self, batch: Any) -> Any:
        """A batch on the device, as the model gets it."""


class Knob:
    """One tunable setting. Class attributes say what it is, hooks what it does."""

    name: ClassVar[str]
    default: ClassVar[Value]
    """What PyTorch does when it is not told."""
    values: ClassVar[OneOf | Integers]
    """What is legal on some machine; `obstacle` says what is not on this one."""
    effect: ClassVar[Effect] = "exact"
    needs: ClassVar[str | None] = None
    """A knob that must be on (not 0, not null) for this one to mean anything."""
    idle: ClassVar[Value] = None
    """The value while `needs` is off."""

    summary: ClassVar[str]
    pays: ClassVar[str]
    hurts: ClassVar[str]
    call: ClassVar[str]
    source: ClassVar[str]

    def suggestions(self, machine: Machine) -> tuple[Value, ...]:
        """The values worth trying here, in ascending order of whatever they cost."""
        assert isinstance(self.values, OneOf)
        return tuple(value for value in self.values.options if not self.obstacle(value, machine))

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        """Why `value` cannot work on this machine, or None."""
        return None

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        """Why this knob cannot change anything for this workload, or None."""
        return None

    def resolve(self, value: Value, machine: Machine) -> Value:
        """The explicit value where `value` means "whatever PyTorch takes"."""
        return value

    def environ(self, value: Value) -> Mapping[str, str]:
        """Environment variables that a process must be started with, being read only then."""
        return {}

    def on_process(self, value: Value) -> None:
        """Called once, before the model is built and before any operation runs."""

    def read_process(self) -> Value:
        """The value in force in this process, for knobs of the process; None for all others."""
        return None

    def on_model(self, value: Value, model: nn.Module) -> nn.Module:
        """The model to train, from the model on its device."""
        return model

    def loader_kwargs(self, value: Value) -> Mapping[str, Any]:
        """Arguments for the DataLoader."""
        return {}

    def optimizer_kwargs(self, value: Value) -> Mapping[str, Any]:
        """Arguments for the optimizer."""
        return {}

    def transfer_kwargs(self, value: Value, dimensions: int) -> Mapping[str, Any]:
        """Arguments for `Tensor.to` when a tensor with so many dimensions goes to the device."""
        return {}

    def forward_context(self, value: Value, device: str) -> AbstractContextManager[None]:
        """What the forward pass and the loss run under."""
        return nullcontext()

    def scales_loss(self, value: Value) -> bool:
        """Whether gradients would underflow without a GradScaler."""
        return False

    def read_back(self, setup: Setup) -> Value:
        """The value that is in force in the live process, asked of PyTorch and not of us."""
        raise NotImplementedError(self.name)


def spelled(value: Value) -> str:
    """A value as YAML spells it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """1, 2, 4 ... between the bounds, both included where they are powers of two."""
    return tuple(1 << n for n in range(high.bit_length()) if low <= 1 << n <= high)
