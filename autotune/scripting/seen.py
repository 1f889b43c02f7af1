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

# Steps of others without one of the first optimizer, after which that is no longer waited for: more
# than any script makes with its critic for one with its generator.
_PATIENCE = 200
# An optimizer that is wrapped in another steps in turn with it, and never twice in a row.
_AGAIN = 2


class Seen:
    """A script's model, optimizer and loader; a `Setup` of which knobs can be read back."""

    def __init__(self) -> None:
        self._model: weakref.ref[nn.Module] | None = None
        self._optimizer: weakref.ref[Optimizer] | None = None
        self._loader: weakref.ref[DataLoader[Any]] | None = None
        self._steps_of_others = 0
        self.changes = 0
        """How often another optimizer took the place of the one that counts."""
        self.autocast_dtype: torch.dtype | None = None
        """Of the last forward pass of training."""
        self.scales = False
        """Whether the script scales its loss."""
        self.batch_size: int | None = None
        """Of the loader of training; where a sampler of the script's own decides, of a batch."""
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
        """The optimizer whose steps count.

        Raises:
            LookupError: none did, or it is gone.
        """
        return _alive(self._optimizer, "no optimizer stepped")

    def counts(self, optimizer: Optimizer) -> bool:
        """Whether steps of this one count: of a GAN's two, those of the first that ever stepped."""
        return self._optimizer is not None and self._optimizer() is optimizer

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped.

        One that was built anew, as after unfreezing layers, takes the place of the first: once that
        is gone, or is passed over by one with parameters of its own, or is not used any more.
        """
        first = None if self._optimizer is None else self._optimizer()
        if optimizer is first:
            self._steps_of_others = 0
            return
        self._steps_of_others += 1
        again = self._steps_of_others == _AGAIN and first is not None and _share(first, optimizer)
        if first is None or again or self._steps_of_others == _PATIENCE:
            self.changes += self._optimizer is not None
            self._optimizer, self._steps_of_others = weakref.ref(optimizer), 0

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
        self.batch_size = batch_size_of(loader)

    def meet(self, loader: DataLoader[Any]) -> None:
        """Take a loader for that of training, as long as there is no other."""
        if self._loader is None or self._loader() is None:
            self.loader = loader

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next((p.device for p in self.parameters), torch.device("cpu"))

    @property
    def parameters(self) -> list[Tensor]:
        """The model's; the optimizer's where the model was never called outside of compiled code.

        Raises:
            LookupError: neither was seen.
        """
        model = None if self._model is None else self._model()
        if model is not None:
            return list(model.parameters())
        return [weight for group in self.optimizer.param_groups for weight in group["params"]]

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
        self._noted[knob.name] = self._read_now(knob)

    def read(self, knob: Knob) -> Value:
        """What is in force, or what was when it was last noted.

        Raises:
            LookupError: nobody ever saw what the knob would be read from.
        """
        try:
            return self._read_now(knob)
        except LookupError:
            if knob.name in self._noted:
                return self._noted[knob.name]
            raise

    def _read_now(self, knob: Knob) -> Value:
        if knob.name != "batch_size":
            return knob.read_back(self)
        if self.batch_size is None:  # a sampler may hide it from the loader itself
            raise LookupError("no loader was seen to feed training")
        return self.batch_size


def samples_in(batch: Any) -> int:
    """The length of a batch's first tensor; 0 where it has none, or does not say."""
    try:
        return _first_length(batch)
    except Exception:  # whatever a batch of the script's own kind does: it is not ours to harm
        return 0


def _first_length(batch: Any) -> int:
    match batch:
        case Tensor() if batch.dim():
            return batch.shape[0]
        case dict() if batch:
            return _first_length(next(iter(batch.values())))
        case tuple() | list() if batch:
            return _first_length(batch[0])
        case _ if hasattr(batch, "data") and isinstance(batch.data, dict):  # a tokenizer's batch
            return _first_length(batch.data)
        case _:
            return 0


def batch_size_of(loader: DataLoader[Any]) -> int | None:
    """Samples of a full batch; None where a sampler of the script's own decides."""
    if loader.batch_size is not None:
        return loader.batch_size
    sampler = loader.batch_sampler
    size = sampler.batch_size if isinstance(sampler, BatchSampler) else None
    return size if isinstance(size, int) else None


def _share(one: Optimizer, other: Optimizer) -> bool:
    """Whether they update some of the same parameters."""
    first, second = (
        {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        for optimizer in (one, other)
    )
    return not first.isdisjoint(second)


def _alive(reference: weakref.ref[Thing] | None, lack: str) -> Thing:
    thing = None if reference is None else reference()
    if thing is None:
        raise LookupError(lack)
    return thing
