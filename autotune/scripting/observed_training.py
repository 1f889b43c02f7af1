"""Record what a script trains with, so that knobs can be read back from it; tell its steps.

References are weak, so that models can be freed. A step is a torch optimizer's, or in a script
without one, which updates its weights itself, each outermost backward pass.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from autotune.knobs.base import Knob, Value
from autotune.process.common.imports import replace
from autotune.training.batches import Batches, batch_size_of, bytes_in, samples_in

Thing = TypeVar("Thing")
Stepper = Optimizer | None
"""The optimizer that stepped; None if the script updates its weights itself."""

# Libraries of environments for agents.
_ENVIRONMENTS = ("gym", "gymnasium", "pettingzoo", "dm_control")

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
        self.batches: Batches | None = None
        """Batches of the training; None if they are not counted."""
        self._ddp: weakref.ref[DistributedDataParallel] | None = None
        self.passed: Mapping[str, Value] = {}
        """Arguments of calls that settings change, each as it was passed."""
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
        if optimizer is None or self._model is None:
            return False
        model = self._model()
        return model is None or set(map(id, model.parameters())).isdisjoint(_ids(optimizer))

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
    def learning_rates(self) -> tuple[float, ...]:
        """Learning rate of each of the optimizer's groups, before any schedule."""
        if self.is_updated_by_hand:
            return ()
        groups = self.optimizer.param_groups
        return tuple(float(group.get("initial_lr", group.get("lr")) or 0.0) for group in groups)

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """A new scaler, enabled beside float16; the script's own scales beside any format."""
        is_on = self.autocast_dtype is torch.float16
        return torch.amp.GradScaler(self.device.type, enabled=is_on)

    @property
    def accumulation_steps(self) -> int:
        """Batches of an optimizer step; raises a LookupError if they are not counted."""
        if self.batches is None:
            raise LookupError("the batches of a step are not counted")
        return self.batches.accumulation_steps

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


def _ids(optimizer: Optimizer) -> set[int]:
    return {id(weight) for group in optimizer.param_groups for weight in group["params"]}


def _alive(reference: weakref.ref[Thing] | None, lack: str) -> Thing:
    thing = None if reference is None else reference()
    if thing is None:
        raise LookupError(lack)
    return thing


class Steps:
    """The steps of one script. Call `watch` once."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Stepper], None]] = []
        """Functions that are called after each step, in this order."""
        self.passed: list[Callable[[bool], None]] = []
        """Functions that are called after each outermost backward pass, before its step. They get
        True while an optimizer steps, which may call the model again and again."""
        self.befores: list[Callable[[Optimizer], None]] = []
        """Functions that are called before each optimizer's step."""
        self.losses: list[Callable[[Any], None]] = []
        """Functions that get what each outermost backward pass is called on, before it runs."""
        self.device: torch.device | None = None
        """Device of the first loss, if backward was called on one."""
        self._in_closure = False
        self._depth = 0
        self._optimizer_built = False

    def watch(self) -> None:
        """Tell every step from now on; patches `torch.autograd` for the process."""

        def build(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            if not self._optimizer_built:
                self._optimizer_built = True
                # Not compiled with a step that the script compiles.
                apart: Callable[..., Any] = torch.compiler.disable
                register_optimizer_step_pre_hook(apart(self._before_optimizer))
                register_optimizer_step_post_hook(apart(self._after_optimizer))

        replace(Optimizer, "__init__", build)
        replace(torch.autograd, "backward", self._backward)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Count no backward pass in this block."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _backward(
        self, original: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if self._depth:  # a checkpointed block differentiates within a backward pass
            return original(tensors, *args, **kwargs)
        if isinstance(tensors, Iterator):
            tensors = tuple(tensors)  # which can be looked at before the call
        for look in self.losses:
            look(tensors)
        self._depth = 1
        try:
            result = original(tensors, *args, **kwargs)
        finally:
            self._depth = 0
        if self.device is None:
            first = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
            self.device = getattr(first, "device", None)
        for passed in self.passed:
            passed(self._in_closure)
        for listen in () if self._optimizer_built else self.listeners:
            listen(None)
        return result

    def _before_optimizer(self, optimizer: Optimizer, *_: object) -> None:
        self._in_closure = True
        for listen in self.befores:
            listen(optimizer)

    def _after_optimizer(self, optimizer: Optimizer, *_: object) -> None:
        self._in_closure = False
        for listen in self.listeners:
            listen(optimizer)


class ModelCalls:
    """Samples that a script's model is given in training, if no loader shows them.

    They are the leading dimension of the first tensor of a call, of the first call in each backward
    pass. Time between such calls in which the model is evaluated is left out.
    """

    def __init__(self) -> None:
        self.size: int | None = None
        """Samples of the first call whose samples are known."""
        self.sample_bytes = 0
        """Bytes of the tensors of one sample, from that call."""
        self.backwards = 0
        """Outermost backward passes so far."""
        self.aside_seconds = 0.0
        """Seconds of evaluations so far."""
        self._is_first = True
        self._are_seen, self._is_called = False, False
        self._passes = self._samples = 0
        self._evaluated: tuple[float, float] | None = None

    def called(self, arguments: Iterable[Any]) -> None:
        """Record a call in training with these arguments."""
        self._are_seen = self._is_called = True
        if self._evaluated is not None:
            self.aside_seconds += self._evaluated[1] - self._evaluated[0]
            self._evaluated = None
        if not self._is_first:
            return
        given = tuple(arguments)
        size = next(filter(None, map(samples_in, given)), 0)
        self._is_first = False
        self._samples += size
        if self.size is None and size:
            self.size, self.sample_bytes = size, bytes_in(given) // size

    def evaluated(self, start: float) -> None:
        """Record a call in an evaluation, which began at `start` and has just ended.

        This is how an agent collects its samples.
        """
        if has_environments():
            return
        first = start if self._evaluated is None else self._evaluated[0]
        self._evaluated = (first, time.perf_counter())

    def passed(self, in_closure: bool) -> None:
        """Record a backward pass.

        It is one of the same batch in an optimizer's step, and where the model was not called since
        the last one, as with two losses of one output.
        """
        self.backwards += 1
        is_same = in_closure or (self._are_seen and not self._is_called)
        if not (is_same and self._passes):
            self._passes += 1
            self._is_first = not in_closure
        self._is_called = False

    def stepped(self) -> tuple[int, int]:
        """Return the backward passes since the last step, and the samples in them."""
        found = self._passes, self._samples
        self._passes = self._samples = 0
        self._is_first = True
        return found


def has_environments() -> bool:
    """Return True if the script has imported a library of environments for an agent."""
    return not sys.modules.keys().isdisjoint(_ENVIRONMENTS)
