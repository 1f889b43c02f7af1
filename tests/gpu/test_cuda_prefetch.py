"""Batches that are copied ahead arrive whole, and while the device is at work."""

import pytest
import torch

from autotune.configuration.job import Measure
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.loader import CopiedAhead
from autotune.training.apply_settings import Settings
from autotune.values.outcome import Measured
from gpus import CUDA, QUICK, cuda_only, job_on

ROWS, BATCHES = 1 << 22, 24
# Enough work for the copy of a batch to be over long before it.
PRODUCTS, SIZE = 40, 4096


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
    for _ in range(PRODUCTS):
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
    outcome = ask(job)
    assert isinstance(outcome, Measured), outcome
