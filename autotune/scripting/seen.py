"""What a script was seen to train with, so that knobs can be read back from it.

Held weakly: a script that trains one model after another must not keep them all because of us.
"""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import BatchSampler, DataLoader

from autotune.knobs.base import Knob, Value

Thing = TypeVar("Thing")


class Seen:
    """A script's model, optimizer and loader; a `Setup` of which knobs can be read back."""

    def __init__(self) -> None:
        self._model: weakref.ref[nn.Module] | None = None
        self._optimizer: weakref.ref[Optimizer] | None = None
        self._loader: weakref.ref[DataLoader[Any]] | None = None
        self.autocast_dtype: torch.dtype | None = None
        """Of the last forward pass of training."""
        self.scales = False
        """Whether the script scales its loss."""
        self.batch_size: int | None = None
        """Of the loader, as it was last noted."""
        self._noted: dict[str, Value] = {}

    @property
    def model(self) -> nn.Module:
        """The first module that was called from outside of all others.

        Raises:
            LookupError: none was, or it is gone.
        """
        return _alive(self._model, "no model was called")

    @model.setter
    def model(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)

    @property
    def optimizer(self) -> Optimizer:
        """The first optimizer that stepped.

        Raises:
            LookupError: none did, or it is gone.
        """
        return _alive(self._optimizer, "no optimizer stepped")

    def steps_with(self, optimizer: Optimizer) -> bool:
        """Whether this is the first optimizer that ever stepped: of a GAN's two, one counts."""
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
        return self._optimizer() is optimizer

    @property
    def loader(self) -> DataLoader[Any]:
        """The loader that feeds it.

        Raises:
            LookupError: there is none, or it is gone.
        """
        return _alive(self._loader, "no DataLoader was iterated with gradients enabled")

    @loader.setter
    def loader(self, loader: DataLoader[Any]) -> None:
        self._loader = weakref.ref(loader)

    def meet(self, loader: DataLoader[Any]) -> None:
        """Take a loader for that of training, as long as there is no other."""
        if self._loader is None or self._loader() is None:
            self.loader = loader
            self.batch_size = batch_size_of(loader)

    @property
    def device(self) -> torch.device:
        """Where the model's parameters are."""
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """A scaler that is enabled where the script's is."""
        return torch.amp.GradScaler(self.device.type, enabled=self.scales)

    def forward_context(self) -> AbstractContextManager[None]:
        """The autocast of the last forward pass."""
        if self.autocast_dtype is None:
            return nullcontext()
        context = torch.autocast(self.device.type, dtype=self.autocast_dtype)
        return cast("AbstractContextManager[None]", context)

    def transfer(self, batch: Tensor) -> Tensor:
        """What the script does with a batch is its own affair: nothing is known of it."""
        return batch

    def note(self, knob: Knob) -> None:
        """Remember what a knob reads now, for when nothing of the training is left."""
        self._noted[knob.name] = knob.read_back(self)

    def read(self, knob: Knob) -> Value:
        """What is in force, or what was when it was last noted.

        Raises:
            LookupError: nobody ever saw what the knob would be read from.
        """
        try:
            return knob.read_back(self)
        except LookupError:
            if knob.name in self._noted:
                return self._noted[knob.name]
            raise


def batch_size_of(loader: DataLoader[Any]) -> int | None:
    """Samples of a full batch; None where a sampler of the script's own decides."""
    if loader.batch_size is not None:
        return loader.batch_size
    sampler = loader.batch_sampler
    size = sampler.batch_size if isinstance(sampler, BatchSampler) else None
    return size if isinstance(size, int) else None


def _alive(reference: weakref.ref[Thing] | None, lack: str) -> Thing:
    thing = None if reference is None else reference()
    if thing is None:
        raise LookupError(lack)
    return thing
