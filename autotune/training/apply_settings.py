"""Apply a configuration to PyTorch piece by piece: model, optimizer, loader, forward pass.

This is the one place where settings take effect. Trials build a whole training loop of these
pieces, and production puts the same pieces into its own loop. So what was measured is what runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS
from autotune.knobs.affinity import AFFINITY, WorkerInit
from autotune.knobs.base import Knob
from autotune.knobs.compile import compiled
from autotune.knobs.device_prefetch import DEVICE_PREFETCH
from autotune.values.errors import UsageError

# Only these: entering a dozen empty contexts would take longer than some training steps.
_CONTEXT_KNOBS = [k for k in ALL_KNOBS if type(k).forward_context is not Knob.forward_context]


@dataclass(frozen=True)
class Settings:
    """A configuration as calls and arguments for PyTorch."""

    config: TrainingConfig
    """Configuration to apply; num_threads is no higher than cpu_affinity leaves cores."""
    _transfer_kwargs: dict[int, Mapping[str, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        config, asked = self.config, self.config["num_threads"]
        threads = AFFINITY.threads_left(config[AFFINITY.name], asked)
        if threads != asked:
            object.__setattr__(self, "config", config.replace(num_threads=threads))

    def apply_to_process(self) -> None:
        """Set what holds for the whole process; must be called before the first operation."""
        for knob in ALL_KNOBS:
            knob.on_process(self.config[knob.name])

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
        for knob in ALL_KNOBS:
            model = knob.on_model(self.config[knob.name], model)
        return self.compiled(model)

    def compiled(self, model: nn.Module) -> nn.Module:
        """Return the model, compiled in place as the knobs of torch.compile say."""
        return compiled(model, self.config.as_dict())

    def loader_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments for the DataLoader."""
        own = {} if (init := self.worker_init_fn()) is None else {"worker_init_fn": init}
        return own | _merged(knob.loader_kwargs(self.config[knob.name]) for knob in ALL_KNOBS)

    def worker_init_fn(self, own: WorkerInit | None = None) -> WorkerInit | None:
        """Return the function that applies settings in a DataLoader worker, then calls `own`."""
        return AFFINITY.worker_init(self.config[AFFINITY.name], own)

    def copied_ahead(self, batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
        """Return the batches of one epoch; with device_prefetch each is copied a step ahead."""
        move = partial(self.transfer, device=device)
        value = self.config[DEVICE_PREFETCH.name]
        return DEVICE_PREFETCH.on_batches(value, batches, move, device)

    def optimizer_kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments for the optimizer, such as `fused=True`."""
        return _merged(knob.optimizer_kwargs(self.config[knob.name]) for knob in ALL_KNOBS)

    def scaler(self, device: str | torch.device) -> torch.amp.GradScaler:
        """Return a gradient scaler; it is disabled unless a setting needs a scaled loss."""
        scales = any(knob.scales_loss(self.config[knob.name]) for knob in ALL_KNOBS)
        return torch.amp.GradScaler(torch.device(device).type, enabled=scales)

    def autocast(self, device: str | torch.device) -> AbstractContextManager[None]:
        """Return the context in which the forward pass and the loss run."""
        stack = ExitStack()
        for knob in _CONTEXT_KNOBS:
            stack.enter_context(knob.forward_context(self.config[knob.name], str(device)))
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

    def _kwargs_for(self, dimensions: int) -> Mapping[str, Any]:
        if dimensions not in self._transfer_kwargs:
            self._transfer_kwargs[dimensions] = _merged(
                knob.transfer_kwargs(self.config[knob.name], dimensions) for knob in ALL_KNOBS
            )
        return self._transfer_kwargs[dimensions]


def _merged(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for mapping in mappings for name, value in mapping.items()}
