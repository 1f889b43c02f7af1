"""The functions of a model.py, made from what another library trains with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Dataset


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
