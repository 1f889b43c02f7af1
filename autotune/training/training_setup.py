"""Build the training loop that a trial times from a configuration and a workload."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset, IterableDataset

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Knob, Value
from autotune.training.apply_settings import Settings
from autotune.training.workload import Workload
from autotune.values.errors import WorkloadError


class DatasetTooSmallError(WorkloadError):
    """The dataset does not fill one batch of the configuration."""


@dataclass(frozen=True)
class TrainingSetup:
    """Model, optimizer and loader under one configuration."""

    settings: Settings
    workload: Workload
    device: torch.device
    model: nn.Module
    optimizer: Optimizer
    loader: DataLoader[Any]
    scaler: torch.amp.GradScaler

    @property
    def config(self) -> TrainingConfig:
        """Configuration that should be in force."""
        return self.settings.config

    def forward_context(self) -> AbstractContextManager[None]:
        """Return the context in which the forward pass and the loss run, such as autocast."""
        return self.settings.autocast(self.device)

    def transfer(self, batch: Any) -> Any:
        """Return the batch with its tensors on the device."""
        return self.settings.transfer(batch, self.device)

    def step(self, batch: Any) -> Tensor:
        """Take one full training step on a batch from the loader and return the loss.

        The device is not waited for.

        Raises:
            WorkloadError: compute_loss returned no scalar tensor with a gradient.
        """
        batch = self.transfer(batch)
        self.optimizer.zero_grad(set_to_none=True)
        with self.forward_context():
            loss = self.workload.compute_loss(self.model, batch)
        if not (isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad):
            raise WorkloadError(
                f"{self.workload.path}: compute_loss must return a scalar tensor that depends on "
                f"the parameters; it returned {_described(loss)}."
            )
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def not_applied(self) -> list[tuple[Knob, Value]]:
        """Return the knobs that read back another value than configured, each with that value."""
        wanted = [(knob, value) for knob, value in self.config.items() if knob.is_readable]
        read = ((knob, value, knob.read_back(self)) for knob, value in wanted)
        return [(knob, found) for knob, value, found in read if found != value]


def apply(
    config: TrainingConfig,
    workload: Workload,
    device: str,
    seed: int,
    dataset: Dataset[Any],
    lr_factor: float = 1.0,
) -> TrainingSetup:
    """Seed all generators, then build model, optimizer and loader of `workload` under `config`.

    The settings of the process must be in force already (`Settings.apply_to_process`).
    `lr_factor` multiplies every learning rate.

    Raises:
        WorkloadError: the workload built something of the wrong type, or too small a dataset.
    """
    seed_everything(seed)
    target = torch.device(device)
    settings = Settings(config)
    model = settings.prepare(build_model(workload).to(target))
    optimizer = workload.build_optimizer(model.parameters(), **settings.optimizer_kwargs())
    if not isinstance(optimizer, Optimizer):
        raise WorkloadError(
            f"{workload.path}: build_optimizer returned {type(optimizer).__name__}, "
            "not a torch.optim.Optimizer."
        )
    _scale_learning_rates(optimizer, lr_factor)
    loader = build_loader(config, workload, dataset, seed)
    scaler = settings.scaler(target)
    return TrainingSetup(settings, workload, target, model, optimizer, loader, scaler)


def build_loader(
    config: TrainingConfig, workload: Workload, dataset: Dataset[Any], seed: int
) -> DataLoader[Any]:
    """Return the training loader: map-style datasets are shuffled, only full batches are given.

    Raises:
        WorkloadError: the dataset is empty.
        DatasetTooSmallError: the dataset is smaller than one batch.
    """
    iterable = isinstance(dataset, IterableDataset)
    if not iterable:
        _check_size(len(dataset), config, workload)  # type: ignore[arg-type]
    return DataLoader(
        dataset,
        shuffle=None if iterable else True,
        drop_last=True,
        collate_fn=workload.collate_fn,
        generator=torch.Generator().manual_seed(seed),
        **Settings(config).loader_kwargs(),
    )


def build_model(workload: Workload) -> nn.Module:
    """Return the workload's model.

    Raises:
        WorkloadError: it is not a module.
    """
    model = workload.build_model(**workload.options("options"))
    if not isinstance(model, nn.Module):
        raise WorkloadError(
            f"{workload.path}: build_model returned {type(model).__name__}, not an nn.Module."
        )
    return model


def build_dataset(workload: Workload) -> Dataset[Any]:
    """Return the workload's training set.

    Raises:
        WorkloadError: it is neither map-style nor iterable.
    """
    dataset = workload.build_dataset(**workload.options("dataset_options"))
    map_style = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if not (map_style or isinstance(dataset, IterableDataset)):
        raise WorkloadError(
            f"{workload.path}: build_dataset returned {type(dataset).__name__}, which is neither "
            "a map-style dataset (__getitem__ and __len__) nor an IterableDataset."
        )
    return dataset


def seed_everything(seed: int) -> None:
    """Seed the global random generators of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _scale_learning_rates(optimizer: Optimizer, factor: float) -> None:
    """Multiply the learning rate of every group, and the initial rate that its schedulers use."""
    for group in optimizer.param_groups:
        for name in ("lr", "initial_lr"):
            if factor != 1 and name in group:
                # Not in place: groups may share a tensor.
                group[name] = group[name] * factor


def _check_size(samples: int, config: TrainingConfig, workload: Workload) -> None:
    if samples == 0:
        raise WorkloadError(f"{workload.path}: build_dataset returned an empty dataset.")
    if samples < int(config["batch_size"] or 0):
        raise DatasetTooSmallError(
            f"{workload.path}: the dataset has {samples} samples, fewer than one batch of "
            f"{config['batch_size']}. Choose a smaller batch_size."
        )


def _described(loss: object) -> str:
    if not isinstance(loss, Tensor):
        return type(loss).__name__
    gradient = "" if loss.requires_grad else " without a gradient"
    return f"a tensor of shape {tuple(loss.shape)}{gradient}"
