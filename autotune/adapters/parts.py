"""The functions of a model.py, made from what another library trains with."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value, spelled

T = TypeVar("T")


class Parts(NamedTuple):
    """Functions of a model.py, in the order in which an assignment names them."""

    build_model: Callable[[], nn.Module]
    build_dataset: Callable[[], Dataset[Any]]
    compute_loss: Callable[[nn.Module, Any], Tensor]
    build_optimizer: Callable[..., Optimizer]
    collate_fn: Callable[[list[Any]], Any]


class TrainingStep(nn.Module):
    """A module whose forward pass is a training step, so that all of it is compiled."""

    def __init__(self, trained: nn.Module, loss_of: Callable[[Any], Any]) -> None:
        super().__init__()
        self.trained = trained
        self._loss_of = loss_of

    def forward(self, batch: Any) -> Tensor:
        """Return the loss of a batch.

        Raises:
            ValueError: the training step returns no loss.
        """
        found = self._loss_of(batch)
        loss = found.get("loss") if isinstance(found, Mapping) else found
        if not isinstance(loss, Tensor):
            raise ValueError(f"the training step returned {loss!r}, which is no loss")
        return loss


class Built(Generic[T]):
    """Modules or Trainers of this process, found again by the parameters of their models.

    It keeps none of them alive.
    """

    def __init__(self, model_of: Callable[[T], nn.Module]) -> None:
        self._model_of = model_of
        self._all: list[weakref.ref[T]] = []

    def add(self, one: T) -> None:
        """Remember a module or Trainer."""
        self._all = [*(ref for ref in self._all if ref() is not None), weakref.ref(one)]

    def owner_of(self, parameters: Iterable[nn.Parameter]) -> T:
        """Return the module or Trainer whose model has these parameters.

        Raises:
            ValueError: no model that was built has them.
        """
        asked = set(map(id, parameters))
        for ref in self._all:
            one = ref()
            if (
                asked
                and one is not None
                and asked <= set(map(id, self._model_of(one).parameters()))
            ):
                return one
        raise ValueError("build_optimizer was given parameters of no model that build_model made")


def check_baseline(
    who: str, own: Mapping[str, Value], baseline: Mapping[str, Value] | None
) -> None:
    """Check that the baseline has what the library's training has.

    Args:
        who: the object with these settings, as messages name it.
        own: settings of the training by the name of their knob.
        baseline: BASELINE of the model.py; None for the defaults.

    Raises:
        ValueError: they differ; the message has the right ones.
    """
    said = TrainingConfig.of(baseline or {})
    wrong = [name for name, value in own.items() if value != said[name]]
    if wrong:
        words = ", ".join(
            f"{name}={spelled(own[name])} (baseline: {spelled(said[name])})" for name in wrong
        )
        merged = {**(baseline or {}), **{name: own[name] for name in wrong}}
        raise ValueError(
            f"{who}: {words}. Write BASELINE = {merged} and give it as the adapter's argument "
            "`baseline`."
        )


def loss_of_step(model: nn.Module, batch: Any) -> Tensor:
    """Return the loss of a batch, for a model made of a `TrainingStep`."""
    loss: Tensor = model(batch)
    return loss


def with_options(optimizer: Optimizer, options: Mapping[str, Any]) -> Optimizer:
    """Return the optimizer, made anew with other options such as `fused`."""
    if not options:
        return optimizer
    replaced = {*options, "foreach", "fused"}  # these two exclude each other
    kept: Iterable[dict[str, Any]] = (
        {name: value for name, value in group.items() if name not in replaced}
        for group in optimizer.param_groups
    )
    made: Callable[..., Optimizer] = type(optimizer)
    return made(list(kept), **options)
