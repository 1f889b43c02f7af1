"""The accuracy probe: train on a fixed number of samples, then evaluate the model.

All configurations train on equally many samples, not on equally many steps or seconds. All are
evaluated the same way: without autocast, in eval mode, uncompiled. The held-out loss is computed in
batches of the baseline's size and keeps no sample in memory. So it needs no more memory than the
baseline's training.

A short run bounds early training only. It catches divergence, broken precision and too large a
batch; it cannot certify a full run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch.utils import data

from autotune.configuration.job import Probe
from autotune.knobs.torch_private import set_compiled_call
from autotune.process.common.trial_folder import EVALUATION
from autotune.training.batches import EmptyEpochError, StreamSlice, endless
from autotune.training.training_setup import (
    TrainingSetup,
    build_dataset,
    seed_everything,
)
from autotune.training.workload import Workload
from autotune.values.statistics import LossCurve, Reached

# Held-out samples: a share of a map-style training set, up to a bound; of a stream, so many.
_HELD_OUT_SHARE, _HELD_OUT_MOST, _HELD_OUT_OF_STREAM = 0.1, 2048, 256
_NOTHING_TO_TRAIN_ON = (
    "the short training has no full batch besides the held-out samples; "
    "define evaluate(model, device), or choose a smaller batch_size"
)


class NonFiniteLossError(Exception):
    """The loss became NaN or infinite."""


HeldOut = data.Dataset[Any] | None
"""Samples that a probe evaluates on; None if the workload has a function that evaluates."""


def probe(
    setup: TrainingSetup, held_out: HeldOut, task: Probe, enter_phase: Callable[[str], None]
) -> tuple[float, Reached | None]:
    """Train on exactly the task's number of samples, whatever the batch size, or until a loss.

    Several processes share the samples evenly, and rank 0 evaluates.

    Returns:
        The quality, and what `LossCurve.reached` tells if the task follows the loss.

    Raises:
        EmptyEpochError: the dataset does not fill a batch.
        NonFiniteLossError: the loss or the quality is not a finite number.
    """
    enter_phase("short training")
    reached = _train(setup, task)
    enter_phase(EVALUATION)
    whole_setup = replace(setup, ddp=None)
    quality = setup.world.on_first(lambda: _evaluate(whole_setup, held_out, task.evaluation_batch))
    if not math.isfinite(quality):
        metric = "evaluate" if setup.workload.evaluate else "held_out_loss"
        raise NonFiniteLossError(f"{metric} is {quality} after {task.samples} samples")
    return quality, reached


def _train(setup: TrainingSetup, task: Probe) -> Reached | None:
    setup.model.train()
    curve, loss, share = LossCurve(task.samples, task.most, task.reach), None, setup.world.size
    for samples, loss in _steps(setup, curve.samples // share):
        if task.most:
            found = fmean(setup.world.shares(float(loss)))
            if not math.isfinite(found):  # the sums of the curve would stay so
                raise NonFiniteLossError(f"the loss of a step is {found}")
            curve.add(share * samples, found)
            if curve.has_reached:
                break
    setup.optimizer.zero_grad(set_to_none=True)
    if loss is not None and not torch.isfinite(loss).all():
        raise NonFiniteLossError(f"the loss is {loss.item()} after {curve.samples} samples")
    return curve.reached


def _steps(setup: TrainingSetup, samples: int) -> Iterator[tuple[int, Tensor]]:
    """Take steps on `samples` samples in all, and yield the samples of each with its loss.

    Full steps come first, then one of the full batches that are left, then one of the remainder.
    """
    size = setup.loader.batch_size or 1
    batches, left = divmod(samples, size)
    if left == 1 and batches:
        batches, left = batches - 1, left + size  # BatchNorm cannot train on a single sample
    steps, more = divmod(batches, setup.batches_per_step)
    full = endless(setup.loader, _NOTHING_TO_TRAIN_ON)
    for _ in range(steps):
        yield size * setup.batches_per_step, setup.step(full)
    if more:
        yield size * more, setup.step(full, more)
    if left:
        # Uncompiled from now on: a batch of another size would compile a new graph. The evaluation
        # needs no such care: without gradients a compiled model runs eagerly.
        set_compiled_call(setup.model, None)
        yield left, setup.step(iter((_batch_of(left, setup.loader),)), 1)


def _batch_of(samples: int, loader: data.DataLoader[Any]) -> Any:
    """Return one batch of `samples` samples, drawn from the dataset as the loader draws them."""
    dataset, generator, sampler = loader.dataset, loader.generator, None
    if not isinstance(dataset, data.IterableDataset):
        sampler = data.RandomSampler(dataset, num_samples=samples, generator=generator)  # type: ignore[arg-type]
    single = data.DataLoader(
        dataset,
        batch_size=samples,
        sampler=sampler,
        drop_last=True,
        collate_fn=loader.collate_fn,
        generator=generator,
    )
    return next(endless(single, _NOTHING_TO_TRAIN_ON))


@torch.no_grad()
def _evaluate(setup: TrainingSetup, held_out: HeldOut, batch_size: int) -> float:
    setup.model.eval()
    workload = setup.workload
    if workload.evaluate is not None:
        return float(workload.evaluate(setup.model, setup.device))
    assert held_out is not None
    seed_everything(0)  # so that held-out samples are augmented in the same way each time
    collate = workload.collate_fn or data.default_collate
    loader = data.DataLoader(
        held_out, batch_size, collate_fn=lambda samples: (len(samples), collate(samples))
    )
    # `map` keeps no batch, so that one is freed before the next is made; a loop variable keeps it.
    losses = list(map(partial(_sum_of_losses, setup), loader))
    if not losses:
        raise EmptyEpochError(
            "the stream gives no samples to evaluate on when it is read again; "
            "define evaluate(model, device)"
        )
    return math.fsum(loss for loss, _ in losses) / sum(samples for _, samples in losses)


def _sum_of_losses(setup: TrainingSetup, counted: tuple[int, Any]) -> tuple[float, int]:
    """Return the mean loss of a batch times its samples, and their number."""
    samples, batch = counted
    loss = setup.workload.compute_loss(setup.model, setup.transfer(batch))
    return samples * float(loss), samples


def probe_data(workload: Workload) -> tuple[data.Dataset[Any], HeldOut]:
    """Return the training set and, without `evaluate`, a slice of it that is held out.

    The slice is a tenth, at most 2048 samples; of a stream it is the first 256.

    Raises:
        WorkloadError: the dataset is neither map-style nor iterable.
    """
    dataset = build_dataset(workload)
    if workload.evaluate is not None:
        return dataset, None
    if isinstance(dataset, data.IterableDataset):
        first = _HELD_OUT_OF_STREAM
        return StreamSlice(dataset, first, None), StreamSlice(dataset, 0, first)
    count = len(dataset)  # type: ignore[arg-type]
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    held_out = max(1, min(_HELD_OUT_MOST, int(_HELD_OUT_SHARE * count)))
    return data.Subset(dataset, order[held_out:]), data.Subset(dataset, order[:held_out])
