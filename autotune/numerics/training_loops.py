"""Training loops for comparisons: equal ones, without dropout, in float32 or float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from autotune.knobs.torch_private import is_dropout
from autotune.numerics.disk_store import DiskStore
from autotune.training.loading.batches import endless
from autotune.training.tasks import LoadedJob
from autotune.training.training_setup import TrainingSetup, build_loader, seed_everything

State = Mapping[str, Any]
"""A model's state_dict."""


@dataclass(frozen=True)
class TrainingLoops:
    """A builder of equal training loops; each use needs a new one, since optimizers have state."""

    loaded: LoadedJob
    dataset: Dataset[Any]
    store: DiskStore

    def setup(self, state: State | None = None) -> TrainingSetup:
        """Return a training loop without dropout, with these weights if any are given."""
        setup = self.loaded.setup(self.dataset, self.loaded.job.seed)
        without_dropout(setup.model.train())
        if state is not None:
            setup.model.load_state_dict(state)
        return setup

    def batches(self) -> Iterator[Any]:
        """Yield batches without end, the same ones in each call."""
        loaded = self.loaded
        seed_everything(loaded.job.seed)
        config, workload, seed = loaded.config, loaded.workload, loaded.job.seed
        return endless(build_loader(config, workload, self.dataset, seed, loaded.world))


def without_dropout(model: nn.Module) -> None:
    """Switch off the dropout of all modules."""
    for module in model.modules():
        if is_dropout(module):
            module.p = 0.0  # type: ignore[assignment]  # mypy does not know the private class
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0


@contextmanager
def double_by_default() -> Iterator[None]:
    """Let new tensors be float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def doubled(leaf: Any) -> Any:
    """Return a leaf of a batch in float64 if it is a tensor of real numbers."""
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf
