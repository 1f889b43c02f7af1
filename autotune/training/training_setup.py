"""Build the training loop that a trial times from a configuration and a workload."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Sampler
from torch.utils.data.distributed import DistributedSampler

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.training.apply_settings import Settings, without_exchange
from autotune.training.ranks import ALONE, World
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
    world: World = ALONE
    """The processes that train together, each with such a setup."""
    ddp: DistributedDataParallel | None = None
    """The model as several processes call it; None alone."""
    _losses: list[Tensor] = field(default_factory=list)
    """Share of the mean loss that each backward pass of the last step has."""

    @property
    def trained(self) -> nn.Module:
        """The model that the loss is computed of; knobs and evaluations have `model` itself."""
        return self.model if self.ddp is None else self.ddp

    @property
    def config(self) -> TrainingConfig:
        """Configuration that should have taken effect."""
        return self.settings.config

    @property
    def batches_per_step(self) -> int:
        """Batches whose gradients an optimizer step should add up."""
        return int(self.config["accumulation_steps"] or 1)

    @property
    def accumulation_steps(self) -> int:
        """Backward passes of the last step; 1 before the first one."""
        return max(1, len(self._losses))

    @property
    def loss(self) -> Tensor:
        """Mean loss of the last step."""
        return reduce(add, self._losses)

    def forward_context(self) -> AbstractContextManager[None]:
        """Return the context in which the forward pass and the loss run, such as autocast."""
        return self.settings.autocast(self.device)

    def transfer(self, batch: Any) -> Any:
        """Return the batch with its tensors on the device."""
        return self.settings.transfer(batch, self.device)

    def step(self, batches: Iterator[Any], count: int | None = None) -> Tensor:
        """Take one full training step on the next batches of the loader and return the mean loss.

        The device is not waited for. The gradients of `count` batches are added up, by default of
        as many as configured.

        Raises:
            WorkloadError: compute_loss returned no scalar tensor with a gradient.
        """
        loss = self.accumulate(batches, count or self.batches_per_step)
        if self.workload.clip_gradients is not None:
            self.scaler.unscale_(self.optimizer)
            self.workload.clip_gradients(self.model)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def accumulate(self, batches: Iterator[Any], count: int) -> Tensor:
        """Add up the gradients of the next `count` batches, and return their mean loss.

        Each loss is divided by `count`, so that the gradients are those of the mean.

        Raises:
            WorkloadError: compute_loss returned no scalar tensor with a gradient.
        """
        self.optimizer.zero_grad(set_to_none=True)
        self._losses.clear()
        for _ in range(count):  # which keeps no batch, so that one is freed before the next is made
            self._losses.append(self._backward(next(batches), count))
        return self.loss

    def _backward(self, batch: Any, count: int) -> Tensor:
        """Add the gradients of one of `count` batches, and return its share of the mean loss.

        Processes exchange gradients only with the last one.
        """
        batch, is_last = self.transfer(batch), len(self._losses) == count - 1
        with nullcontext() if is_last else without_exchange(self.trained):
            with self.forward_context():
                loss = self.workload.compute_loss(self.trained, batch)
            if not (isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad):
                raise WorkloadError(
                    f"{self.workload.path}: compute_loss must return a scalar tensor that depends "
                    f"on the parameters; it returned {_described(loss)}."
                )
            loss = loss / count if count > 1 else loss
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def not_applied(self) -> list[tuple[str, Value, Value]]:
        """Return the knobs that read back another value: name, value wanted, value found."""
        wanted = [item for item in self.settings.config.items() if item[0].is_readable]
        read = ((knob.name, value, knob.read_back(self)) for knob, value in wanted)
        return [(name, value, found) for name, value, found in read if found != value]


def step_apart(setup: TrainingSetup) -> Callable[[Iterator[Any]], object]:
    """Return a training step after which no gradients are exchanged."""
    if setup.ddp is None:
        return setup.step

    def step(batches: Iterator[Any]) -> object:
        with without_exchange(setup.trained):
            return setup.step(batches)

    return step


def apply(
    config: TrainingConfig,
    workload: Workload,
    device: str,
    seed: int,
    dataset: Dataset[Any],
    world: World = ALONE,
) -> TrainingSetup:
    """Seed all generators, then build model, optimizer and loader of `workload` under `config`.

    The settings of the process must be applied already (`Settings.apply_to_process`). Each process
    of a world has its share of the data. All begin with the same weights. Random numbers of the
    training, as of dropout and of workers, differ from rank to rank.

    Raises:
        WorkloadError: the workload built something of the wrong type, or too small a dataset.
    """
    seed_everything(seed)
    target = torch.device(device)
    settings = Settings(config)
    model = settings.prepare(build_model(workload).to(target), workload.checkpoint)
    ddp = None if world.is_alone else settings.wrap(model, target)
    optimizer = workload.build_optimizer(model.parameters(), **settings.optimizer_kwargs())
    if not isinstance(optimizer, Optimizer):
        raise WorkloadError(
            f"{workload.path}: build_optimizer returned {type(optimizer).__name__}, "
            "not a torch.optim.Optimizer."
        )
    loader = build_loader(config, workload, dataset, seed, world)
    if world.rank:
        seed_everything(seed + world.rank)
    scaler = settings.scaler(target)
    return TrainingSetup(settings, workload, target, model, optimizer, loader, scaler, world, ddp)


def build_loader(
    config: TrainingConfig,
    workload: Workload,
    dataset: Dataset[Any],
    seed: int,
    world: World = ALONE,
) -> DataLoader[Any]:
    """Return the training loader: map-style datasets are shuffled, only full batches are given.

    An epoch of a map-style dataset has the batches of whole optimizer steps, so that steps of the
    same number of samples see the same samples, however many batches these are in. In a world of
    several processes each gets its share, of equally many batches.

    Raises:
        WorkloadError: the dataset is empty.
        DatasetTooSmallError: the dataset is smaller than one step needs.
    """
    iterable = isinstance(dataset, IterableDataset)
    generator = torch.Generator().manual_seed(seed + world.rank)
    sampler: Sampler[int] | None = None
    if not iterable:
        _check_size(len(dataset) // world.size, config, workload)  # type: ignore[arg-type]
        order: RandomSampler | DistributedSampler[int] = (
            RandomSampler(dataset, generator=generator)  # type: ignore[arg-type]
            if world.is_alone
            else DistributedSampler(dataset, world.size, world.rank, seed=seed, drop_last=True)
        )
        sampler = WholeSteps(order, config.effective_batch)
    return DataLoader(
        dataset,
        sampler=sampler,
        drop_last=True,
        collate_fn=workload.collate_fn,
        generator=generator,
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


def scale_learning_rates(optimizer: Optimizer, factor: float) -> None:
    """Multiply the learning rate of every group, and the initial rate that its schedulers use."""
    for group in optimizer.param_groups:
        for name in ("lr", "initial_lr"):
            if factor != 1 and name in group:
                # Not in place: groups may share a tensor.
                group[name] = group[name] * factor


def _check_size(samples: int, config: TrainingConfig, workload: Workload) -> None:
    if samples == 0:
        raise WorkloadError(f"{workload.path}: build_dataset returned an empty dataset.")
    if samples < config.effective_batch:
        batch, count = config["batch_size"], int(config["accumulation_steps"] or 1)
        step = f"one batch of {batch}" if count == 1 else f"one step of {count} batches of {batch}"
        raise DatasetTooSmallError(
            f"{workload.path}: the dataset has {samples} samples, fewer than {step}. "
            f"Choose a smaller {'batch_size' if count == 1 else 'batch_size x accumulation_steps'}."
        )


def _described(loss: object) -> str:
    if not isinstance(loss, Tensor):
        return type(loss).__name__
    gradient = "" if loss.requires_grad else " without a gradient"
    return f"a tensor of shape {tuple(loss.shape)}{gradient}"


class WholeSteps(Sampler[int]):
    """A random order of a dataset, or a rank's share of it, cut to whole optimizer steps.

    A step of four batches of 8 has the samples of one batch of 32, in every epoch. All ranks have
    equally many samples: what does not divide is left out. A step of all ranks has the same samples
    of the order, whatever the batch size.
    """

    def __init__(self, order: RandomSampler | DistributedSampler[int], step_samples: int) -> None:
        self._order, self._step_samples = order, step_samples

    def __iter__(self) -> Iterator[int]:
        # The whole order is drawn, however long the part that is used.
        order = list(self._order)
        if isinstance(self._order, DistributedSampler):
            self._order.set_epoch(self._order.epoch + 1)
        yield from order[: len(self)]

    def __len__(self) -> int:
        return self._order.num_samples // self._step_samples * self._step_samples
