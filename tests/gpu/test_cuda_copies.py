"""Copies of pinned batches do not make the training loop wait."""

from typing import Any

import pytest
import torch
from torch import Tensor

from autotune.configuration.training_config import TrainingConfig
from autotune.training.apply_settings import Settings
from gpus import CUDA, cuda_only

BYTES = 1 << 28
# Enough work for the copy to be behind it in the queue when it returns.
PRODUCTS, SIZE = 20, 4096


class Recording(Tensor):
    """Notes how it is told to move."""

    told: list[dict[str, Any]]

    def to(self, *args, **kwargs):
        self.told.append(kwargs)
        return self


def transfers(pinned):
    return Settings(TrainingConfig.of({"pin_memory": pinned}))


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize(("pinned", "told"), [(True, {"non_blocking": True}), (False, {})])
def test_a_batch_is_told_not_to_wait_where_it_is_pinned(device, pinned, told):
    """The command alone, which needs no device."""
    batch = {"images": torch.zeros(2, 3).as_subclass(Recording)}
    batch["images"].told = []
    transfers(pinned).transfer(batch, torch.device(device))
    assert batch["images"].told == [told]


@cuda_only("a CPU copies nothing")
@pytest.mark.parametrize("pinned", [True, False])
def test_a_copy_returns_before_it_is_done_where_the_batch_is_pinned(pinned):
    settings, device = transfers(pinned), torch.device(CUDA)
    batch = torch.ones(BYTES, dtype=torch.uint8)
    batch = batch.pin_memory() if pinned else batch
    matrix = torch.ones(SIZE, SIZE, device=device)
    # What is made at the first use would wait for the device: its memory, the library's handle.
    settings.transfer(batch, device)
    matrix @ matrix
    torch.cuda.synchronize(device)
    for _ in range(PRODUCTS):
        matrix @ matrix
    moved = settings.transfer(batch, device)
    is_done = torch.cuda.current_stream(device).query()
    assert is_done == (not pinned)
    assert int(moved[-1]) == 1
