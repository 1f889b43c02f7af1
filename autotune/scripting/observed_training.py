"""Record what a script trains with, so that knobs can be read back from it.

References are weak, so that models of a script that trains several can be freed.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from autotune.knobs.base import Knob, Value
from autotune.training.batches import batch_size_of
from autotune.training.inspection import tensor_bytes

Thing = TypeVar("Thing")

# Steps of other optimizers after which the first one counts as out of use.
_PATIENCE = 200
# Steps in a row after which an optimizer of the same parameters takes over. One that is wrapped in
# another alternates with it.
_AGAIN = 2


class ObservedTraining:
    """A script's model, optimizer and loader: a `Setup` from which knobs can be read back."""

    def __init__(self) -> None:
        self._model: weakref.ref[nn.Module] | None = None
        self._others: list[weakref.ref[nn.Module]] = []
        self._optimizer: weakref.ref[Optimizer] | None = None
        self._loader: weakref.ref[DataLoader[Any]] | None = None
        self._steps_of_others = 0
        self._weights: list[weakref.ref[Tensor]] = []
        self.is_updated_by_hand = False
        """True if the script trains without a torch optimizer."""
        self.loss_device: torch.device | None = None
        """Device of the first loss; None if it is unknown."""
        self.changes = 0
        """Times that another optimizer replaced the one that counts."""
        self.autocast_dtype: torch.dtype | None = None
        """Autocast's dtype in the last observed forward pass of training; None without autocast."""
        self.batch_size: int | None = None
        """Batch size of the training loader; a batch's size if the script's own sampler decides."""
        self.batches_per_step: int | None = None
        """Batches of an optimizer step; None if they are not counted."""
        self._ddp: weakref.ref[DistributedDataParallel] | None = None
        self._noted: dict[str, Value] = {}

    @property
    def model(self) -> nn.Module:
        """The first module that the script called directly, not from within another module.

        Raises a LookupError if no module was called, or it is freed.
        """
        return _alive(self._model, "no model was called")

    @model.setter
    def model(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self._weights = [weakref.ref(weight) for weight in model.parameters()]

    @property
    def models(self) -> list[nn.Module]:
        """The modules that training calls, such as an encoder and a decoder, as far as they live.

        The first one set is `model`.
        """
        # Not by truth value: torch.compile's wrapper would ask the model for its length.
        found = (ref() for ref in (self._model, *self._others) if ref is not None)
        return [model for model in found if model is not None]

    @models.setter
    def models(self, models: Sequence[nn.Module]) -> None:
        self.model, *others = models
        self._others = list(map(weakref.ref, others))

    @property
    def ddp(self) -> DistributedDataParallel | None:
        """Wrapper of the model in several processes; None in one, and where there is none."""
        return None if self._ddp is None else self._ddp()

    @ddp.setter
    def ddp(self, ddp: DistributedDataParallel | None) -> None:
        self._ddp = None if ddp is None else weakref.ref(ddp)

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer whose steps count; raises LookupError if there is none, or it is freed."""
        return _alive(self._optimizer, "no optimizer stepped")

    def counts(self, optimizer: Optimizer | None) -> bool:
        """Return True if this optimizer's steps count; None stands for the script's own updates."""
        if optimizer is None:
            return self.is_updated_by_hand
        return self._optimizer is not None and self._optimizer() is optimizer

    def is_of_another_model(self, optimizer: Optimizer | None) -> bool:
        """Return True if an optimizer has no parameter of the observed model."""
        if optimizer is None or not self._weights:
            return False
        known = {id(weight) for weight in (ref() for ref in self._weights) if weight is not None}
        return known.isdisjoint(_ids(optimizer))

    def stepped(self, optimizer: Optimizer | None) -> None:
        """Record an optimizer step; the first optimizer counts until another one replaces it.

        A new one, as after unfreezing layers, takes over if the first is freed or has not stepped
        for 200 steps of others, or two if they share parameters. None stands for the script's own
        updates, which any replaces.
        """
        if optimizer is None:
            self.is_updated_by_hand = self._optimizer is None
            return
        first = None if self._optimizer is None else self._optimizer()
        if optimizer is first:
            self._steps_of_others = 0
            return
        self._steps_of_others += 1
        is_due = self._steps_of_others == _PATIENCE
        if first is not None and self._steps_of_others == _AGAIN:
            is_due = not _ids(first).isdisjoint(_ids(optimizer))
        if first is None or is_due:
            self.changes += self.is_updated_by_hand or self._optimizer is not None
            self.is_updated_by_hand = False
            self._optimizer, self._steps_of_others = weakref.ref(optimizer), 0

    @property
    def loader(self) -> DataLoader[Any]:
        """The training loader; raises a LookupError if there is none, or it is freed."""
        return _alive(self._loader, "no DataLoader was iterated with gradients enabled")

    @loader.setter
    def loader(self, loader: DataLoader[Any]) -> None:
        self._loader = weakref.ref(loader)
        self.batch_size = batch_size_of(loader)

    def meet(self, loader: DataLoader[Any]) -> None:
        """Take a loader as the training loader unless there is one."""
        if self._loader is None or self._loader() is None:
            self.loader = loader

    @property
    def device(self) -> torch.device:
        """Device of the first parameter, else of the first loss."""
        fallback = self.loss_device or torch.device("cpu")
        return next((weight.device for weight in self.parameters), fallback)

    @property
    def parameters(self) -> list[Tensor]:
        """Parameters of the model; those of the optimizer if no call of a model was observed.

        Without both there are none if the script updates tensors of its own, else a LookupError.
        """
        model = None if self._model is None else self._model()
        if model is not None:
            return list(model.parameters())
        return [] if self.is_updated_by_hand else self.trained

    @property
    def trained(self) -> list[Tensor]:
        """Parameters of the optimizer, perhaps of several models; of the model if there is none."""
        if self.is_updated_by_hand:
            return self.parameters
        return [weight for group in self.optimizer.param_groups for weight in group["params"]]

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """A new scaler, enabled beside float16; the script's own scales beside any format."""
        is_on = self.autocast_dtype is torch.float16
        return torch.amp.GradScaler(self.device.type, enabled=is_on)

    @property
    def accumulation_steps(self) -> int:
        """Batches of an optimizer step; raises a LookupError if they are not counted."""
        if self.batches_per_step is None:
            raise LookupError("the batches of a step are not counted")
        return self.batches_per_step

    def forward_context(self) -> AbstractContextManager[None]:
        """Return the autocast context of the last forward pass."""
        dtype = self.autocast_dtype
        found: Any = nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)
        return found  # type: ignore[no-any-return]

    def transfer(self, batch: Tensor) -> Tensor:
        """Return the batch unchanged: the script's own transfer is not observed."""
        return batch

    def note(self, knob: Knob) -> None:
        """Record a knob's present value, for reading after the training objects are freed.

        Raises:
            LookupError: the object to read it from was never observed, or is freed.
        """
        self._noted[knob.name] = self._read_now(knob)

    def read(self, knob: Knob) -> Value:
        """Return a knob's present value, or the last recorded one.

        Raises:
            LookupError: there is neither.
        """
        try:
            return self._read_now(knob)
        except LookupError:
            if knob.name in self._noted:
                return self._noted[knob.name]
            raise

    def read_of_others(self, knob: Knob) -> list[Value]:
        """Return a knob's present value of each further model that training calls."""
        found = []
        for model in self.models[1:]:
            view = copy(self)
            view.model = model
            found.append(knob.read_back(view))
        return found

    def _read_now(self, knob: Knob) -> Value:
        if knob.name != "batch_size":
            with torch.no_grad():  # what is done here is no training of the script's
                return knob.read_back(self)
        if self.batch_size is None:  # the loader may not know it, because of a sampler
            raise LookupError("no loader was seen to feed training")
        return self.batch_size


def bytes_in(batch: Any) -> int:
    """Return the bytes of a batch's tensors; 0 if it is of an unknown type."""
    try:
        return tensor_bytes(batch)
    except Exception:  # an unknown type of batch must not harm the script
        return 0


def _ids(optimizer: Optimizer) -> set[int]:
    return {id(weight) for group in optimizer.param_groups for weight in group["params"]}


def _alive(reference: weakref.ref[Thing] | None, lack: str) -> Thing:
    thing = None if reference is None else reference()
    if thing is None:
        raise LookupError(lack)
    return thing
