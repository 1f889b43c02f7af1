"""Copies of pinned batches, also those made ahead, do not make the training loop wait."""

from typing import Any

import pytest
import torch
from torch import Tensor

from autotune.configuration.job import Measure
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.loader import CopiedAhead
from autotune.training.apply_settings import Settings
from children import measured
from gpus import CUDA, QUICK, cuda_only, job_on

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


ROWS, BATCHES = 1 << 22, 24
# Enough work for the copy of a batch to be over long before it.
MANY = 40


def batches_on(device, is_ahead):
    """Sums of batches of a single value each; those are slow, so that memory is wanted again."""
    config = TrainingConfig.of({"pin_memory": is_ahead, "device_prefetch": is_ahead})
    settings, target = Settings(config), torch.device(device)
    pinned = (
        batch.pin_memory() if is_ahead else batch
        for batch in (torch.full((ROWS // 64, 16), float(n)) for n in range(BATCHES))
    )
    sums, matrix = [], torch.ones(256, 256, device=target)
    for batch in settings.copied_ahead(iter(pinned), target):
        moved = settings.transfer(batch, target)
        for _ in range(4):
            matrix @ matrix
        sums.append(moved.mean())
    return [int(one) for one in sums]


def test_every_batch_arrives_as_it_was_though_memory_is_used_again(device):
    assert batches_on(device, is_ahead=device != "cpu") == list(range(BATCHES))


@cuda_only("a CPU copies nothing")
def test_the_next_batch_arrives_while_the_device_is_at_work():
    device = torch.device(CUDA)
    matrix = torch.ones(SIZE, SIZE, device=device)
    matrix @ matrix
    torch.cuda.synchronize(device)
    host = iter([torch.full((ROWS,), float(n)).pin_memory() for n in range(3)])
    batches = CopiedAhead(host, lambda batch: batch.to(device, non_blocking=True), device)
    first = next(batches)
    for _ in range(MANY):
        matrix @ matrix
    assert batches._next is not None
    following, is_copied = batches._next
    is_copied.synchronize()
    assert not torch.cuda.current_stream(device).query()
    assert (int(first[-1]), int(following[-1])) == (0, 1)


@cuda_only("on a CPU nothing is copied ahead")
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_trial_trains_on_batches_that_are_copied_ahead(ask, channels_last):
    job = job_on(
        CUDA,
        Measure(QUICK),
        num_workers=1,
        pin_memory=True,
        device_prefetch=True,
        channels_last=channels_last,
    )
    measured(ask(job))
