"""Apply a configuration to PyTorch piece by piece: model, optimizer, loader, forward pass.

This is the one place where settings take effect. Trials build a whole training loop of these
pieces, and production puts the same pieces into its own loop. So what was measured is what runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Knob, Value
from autotune.knobs.compile import compiled
from autotune.values.errors import UsageError


@dataclass(frozen=True)
class Settings:
    """A configuration as calls and arguments for PyTorch."""

    config: TrainingConfig
    _transfer_kwargs: dict[int, Mapping[str, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def apply_to_process(self) -> None:
        """Set what holds for the whole process; must be called before the first operation."""
        for knob, value in self.config.items():
            knob.on_process(value)

    def prepare(
        self, model: nn.Module, checkpoint: Callable[[nn.Module], object] | None = None
    ) -> nn.Module:
        """Return the model to train, given a model that is on its device already.

        `checkpoint` is the function of model.py that wraps what is to be recomputed.

        Raises:
            UsageError: the configuration recomputes activations, and `checkpoint` is None.
        """
        if self.config["activation_checkpointing"]:
            if checkpoint is None:
                raise UsageError(
                    "activation_checkpointing=true needs the function checkpoint(model) of "
                    "model.py; write best.prepare(model, checkpoint=checkpoint)."
                )
            checkpoint(model)
        for knob, value in self.config.items():
            model = knob.on_model(value, model)
        return compiled(model, self.config.as_dict())

    def wrap(self, model: nn.Module, device: torch.device) -> DistributedDataParallel:
        """Return what each of several processes calls in training, given a prepared model.

        The process group must exist.

        Side effect: every process gets the weights of rank 0.
        """
        devices = None if device.type == "cpu" else [device]
        ddp = DistributedDataParallel(model, device_ids=devices, **self.ddp_kwargs())
        self.on_ddp(ddp)
        return ddp

    def ddp_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments for DistributedDataParallel."""
        return _merged(knob.ddp_kwargs(value) for knob, value in self.config.items())

    def on_ddp(self, ddp: DistributedDataParallel) -> None:
        """Apply to DistributedDataParallel what it takes after it was made, such as hooks."""
        for knob, value in self.config.items():
            knob.on_ddp(value, ddp)

    def loader_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments for the DataLoader."""
        return _merged(knob.loader_kwargs(value) for knob, value in self.config.items())

    def optimizer_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments for the optimizer, such as `fused=True`."""
        return _merged(knob.optimizer_kwargs(value) for knob, value in self.config.items())

    def scaler(self, device: str | torch.device) -> torch.amp.GradScaler:
        """Return a gradient scaler; it is disabled unless a setting needs a scaled loss."""
        scales = any(knob.scales_loss(value) for knob, value in self.config.items())
        return torch.amp.GradScaler(torch.device(device).type, enabled=scales)

    def autocast(self, device: str | torch.device) -> AbstractContextManager[None]:
        """Return the context in which the forward pass and the loss run."""
        stack = ExitStack()
        for knob, value in self._context_knobs:
            stack.enter_context(knob.forward_context(value, str(device)))
        return stack  # type: ignore[return-value]

    def transfer(self, batch: Any, device: torch.device) -> Any:
        """Return the batch on the device; tuples, lists, dicts and namedtuples may be nested."""
        match batch:
            case Tensor():
                return batch.to(device, **self._kwargs_for(batch.dim()))
            case _ if hasattr(batch, "to"):  # a PackedSequence, a tokenizer's batch
                return batch.to(device)
            case dict():
                moved = copy.copy(batch)  # keeps the type of dict and a defaultdict's factory
                moved.update((key, self.transfer(value, device)) for key, value in batch.items())
                return moved
            case tuple() if hasattr(batch, "_fields"):
                return type(batch)(*(self.transfer(part, device) for part in batch))
            case tuple() | list():
                return type(batch)(self.transfer(part, device) for part in batch)
            case _:
                return batch

    @cached_property
    def _context_knobs(self) -> list[tuple[Knob, Value]]:
        # Only these: entering a dozen empty contexts would take longer than some training steps.
        return [
            (k, v)
            for k, v in self.config.items()
            if type(k).forward_context is not Knob.forward_context
        ]

    def _kwargs_for(self, dimensions: int) -> Mapping[str, Any]:
        if dimensions not in self._transfer_kwargs:
            self._transfer_kwargs[dimensions] = _merged(
                knob.transfer_kwargs(value, dimensions) for knob, value in self.config.items()
            )
        return self._transfer_kwargs[dimensions]


def without_exchange(trained: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which backward passes add up gradients and do not exchange them."""
    return trained.no_sync() if isinstance(trained, DistributedDataParallel) else nullcontext()


def _merged(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for mapping in mappings for name, value in mapping.items()}
