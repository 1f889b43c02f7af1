"""Base class of knobs: one tunable setting, applied and read back by hooks.

`Knob` is a null object: each hook does nothing unless a knob overrides it. Hooks import torch
inside themselves, so that the parent process can load every knob without torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

Value = bool | int | float | str | None
Effect = Literal["exact", "numerics", "statistics"]
"""Effect on the trained model: none (exact), rounding (numerics), another course (statistics)."""
_MOST_INTEGER = 1 << 63


@dataclass(frozen=True, slots=True)
class OneOf:
    """A closed list of values."""

    options: tuple[Value, ...]

    def fault(self, value: object) -> str | None:
        """Return the fault of `value`, or None; 1 is not True."""
        if any(type(value) is type(option) and value == option for option in self.options):
            return None
        return f"expected {' or '.join(map(spelled, self.options))}"


@dataclass(frozen=True, slots=True)
class Integers:
    """Whole numbers from `low` to `high`, and null if `nullable`."""

    low: int
    high: int
    nullable: bool = False

    def fault(self, value: object) -> str | None:
        """Return the fault of `value`, or None; True is not 1."""
        if value is None and self.nullable:
            return None
        if type(value) is int and self.low <= value <= self.high:
            return None
        return f"expected an integer from {self.low} to {self.high}" + (
            " or null" if self.nullable else ""
        )


@dataclass(frozen=True, slots=True)
class AnyPlain:
    """Any plain value that a file can hold; `only_text` leaves out numbers and truth values."""

    only_text: bool = False

    def fault(self, value: object) -> str | None:
        """Return the fault of `value`, or None."""
        if value is None or (isinstance(value, str) and value and value.isprintable()):
            return None
        if self.only_text:
            return "expected printable text in quotes that is not empty, or null"
        if isinstance(value, bool) or (isinstance(value, int) and abs(value) < _MOST_INTEGER):
            return None
        if isinstance(value, float) and math.isfinite(value):
            return None
        return "expected text, a number, true, false or null"


class Setup(Protocol):
    """A training loop that is ready to run, as `read_back` uses it."""

    @property
    def device(self) -> torch.device: ...
    @property
    def model(self) -> nn.Module: ...
    @property
    def ddp(self) -> DistributedDataParallel | None:
        """Return what wraps the model in several processes; None in one."""

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...
    @property
    def loader(self) -> torch.utils.data.DataLoader[Any]: ...
    @property
    def accumulation_steps(self) -> int:
        """Return the number of backward passes of the last step."""

    @property
    def scaler(self) -> torch.amp.GradScaler: ...

    def forward_context(self) -> AbstractContextManager[None]: ...

    def transfer(self, batch: Any) -> Any:
        """Return a batch on the device, as the model gets it."""


class Knob:
    """One tunable setting: class attributes describe it, hooks apply it and read it back."""

    name: str
    default: ClassVar[Value]
    """PyTorch's own default."""
    values: OneOf | Integers | AnyPlain
    """Values that are legal on some machine; `obstacle` excludes those that fail on this one."""
    effect: ClassVar[Effect] = "exact"
    needs: ClassVar[str | None] = None
    """Name of a knob that must be on for an effect of this one: not 0, false or null."""
    idle: ClassVar[Value] = None
    """Value while it has none."""
    of_ranks: bool = False
    """True if the knob only has an effect with several processes that train together."""
    is_readable: bool = True
    """False if only the user's own code sees the value, so that `read_back` cannot read it."""

    script_obstacle: ClassVar[str] = ""
    """Reason why the knob cannot be applied to an unmodified script; empty if it can."""

    summary: str
    pays: ClassVar[str]
    hurts: ClassVar[str]
    call: str
    source: ClassVar[str]

    def suggestions(self, machine: Machine) -> tuple[Value, ...]:
        """Return the values worth trying on this machine, in ascending order of their cost."""
        assert isinstance(self.values, OneOf)
        return tuple(value for value in self.values.options if not self.obstacle(value, machine))

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        """Return the reason why `value` cannot work on this machine, or None."""
        return None

    def nondeterminism(self, value: Value) -> str | None:
        """Return the reason why runs differ although torch's deterministic mode is on, or None."""
        return None

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        """Return the reason why this knob stays as it is on this workload, or None."""
        return None

    def exclusion(self, value: Value, facts: WorkloadFacts) -> str | None:
        """Return the reason why `value` is not tried on this workload, or None."""
        return None

    def resolve(self, value: Value, machine: Machine) -> Value:
        """Return the explicit value if `value` means PyTorch's own choice."""
        return value

    def environ(self, value: Value) -> Mapping[str, str]:
        """Return environment variables that libraries read only at the start of a process."""
        return {}

    def on_process(self, value: Value) -> None:
        """Apply the value to the process, before the model is built and any operation runs."""

    def read_process(self) -> Value:
        """Return the present value in this process; None if it is no setting of the process."""
        return None

    def setters(self) -> Iterable[tuple[Any, str]]:
        """Return the functions by which a script sets this knob of the process: owner and name.

        Where a value takes the place of the script's own, calls of them do nothing.
        """
        return ()

    def stays(self, setup: Setup) -> str:
        """Return the reason why a script's own value cannot be replaced; empty if it can."""
        return "" if self.setters() else "the script sets it itself"

    def on_model(self, value: Value, model: nn.Module) -> nn.Module:
        """Return the model to train; `model` is on its device."""
        return model

    def ddp_kwargs(self, value: Value) -> Mapping[str, Any]:
        """Return arguments for DistributedDataParallel."""
        return {}

    def on_ddp(self, value: Value, ddp: DistributedDataParallel) -> None:
        """Apply the value to DistributedDataParallel once it wraps the model."""

    def loader_kwargs(self, value: Value) -> Mapping[str, Any]:
        """Return arguments for the DataLoader."""
        return {}

    def optimizer_kwargs(self, value: Value) -> Mapping[str, Any]:
        """Return arguments for the optimizer."""
        return {}

    def transfer_kwargs(self, value: Value, dimensions: int) -> Mapping[str, Any]:
        """Return arguments for `Tensor.to` of a batch's tensor with so many dimensions."""
        return {}

    def forward_context(self, value: Value, device: str) -> AbstractContextManager[None]:
        """Return the context of the forward pass and the loss."""
        return nullcontext()

    def scales_loss(self, value: Value) -> bool:
        """Return True if gradients can underflow without a GradScaler."""
        return False

    def read_back(self, setup: Setup) -> Value:
        """Return the present value in the live process, as PyTorch reports it."""
        return self.read_process()


def spelled(value: Value) -> str:
    """Return a value as YAML spells it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """Return the powers of two from `low` to `high`, bounds included."""
    return tuple(1 << n for n in range(high.bit_length()) if low <= 1 << n <= high)
