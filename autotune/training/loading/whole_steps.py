"""The order of samples in which several batches make an optimizer step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, RandomSampler
from torch.utils.data.distributed import DistributedSampler

from autotune.training.ranks.world import World


class WholeSteps(RandomSampler):
    """A random order of a dataset, cut to whole optimizer steps.

    The order depends on the generator alone. So a step of four batches of 8 has the samples of one
    batch of 32, in every epoch.
    """

    def __init__(
        self, dataset: Dataset[Any], step_samples: int, generator: torch.Generator
    ) -> None:
        super().__init__(dataset, generator=generator)  # type: ignore[arg-type]
        self._step_samples = step_samples

    def __iter__(self) -> Iterator[int]:
        # The whole order is drawn, however long the part that is used.
        yield from list(super().__iter__())[: len(self)]

    def __len__(self) -> int:
        return self.num_samples // self._step_samples * self._step_samples


class StepsOfRank(DistributedSampler[int]):
    """A rank's share of a random order of a dataset, cut to whole optimizer steps.

    All ranks have equally many samples: what does not divide is left out. A step of all ranks has
    the same samples of the order, whatever the batch size. Each iteration is the next epoch.
    """

    def __init__(self, dataset: Dataset[Any], step_samples: int, seed: int, world: World) -> None:
        super().__init__(dataset, world.size, world.rank, seed=seed, drop_last=True)
        self._step_samples = step_samples

    def __iter__(self) -> Iterator[int]:
        order = list(super().__iter__())
        self.set_epoch(self.epoch + 1)
        yield from order[: len(self)]

    def __len__(self) -> int:
        return self.num_samples // self._step_samples * self._step_samples
