"""Count the FLOPs of a training step, and time matrix products in its number format."""

from __future__ import annotations

import itertools
import time
from functools import partial

import torch

from autotune.configuration.job import CountFlops
from autotune.knobs.affinity import AFFINITY
from autotune.limits.flops import count_flops
from autotune.limits.matmul_rate import matmul_rate
from autotune.training.batches import Batches
from autotune.training.tasks import LoadedJob
from autotune.training.timing import synchronize
from autotune.training.training_setup import TrainingSetup, build_dataset, step_apart
from autotune.values.outcome import CountedFlops, TrialOutcome

# Steps that are counted, each on a batch of its own: samples may differ in length.
_BATCHES = 4


def count(loaded: LoadedJob, task: CountFlops) -> TrialOutcome:
    """Count the FLOPs of a sample and, unless the search knows it, time matrix products.

    Raises:
        WorkloadError: the workload built something of the wrong type, or too small a dataset.
    """
    loaded.folder.enter_phase("counting FLOPs")
    setup = loaded.setup(build_dataset(loaded.workload), loaded.job.seed)
    setup.model.train()
    stream = Batches(setup.loader, time.perf_counter, partial(synchronize, setup.device))
    batches = [setup.transfer(next(stream)) for _ in range(_BATCHES)]
    stream.close()
    step = step_apart(setup)
    counted = count_flops(
        [partial(step, itertools.repeat(batch)) for batch in batches], setup.device
    )
    if isinstance(counted, str):
        return CountedFlops(uncounted=counted)
    rate = None
    if counted.number_format not in task.known_formats:
        rate = setup.world.on_first(lambda: _rate(setup, counted.number_format, task))
    samples = _BATCHES * setup.batches_per_step * (setup.loader.batch_size or 1)
    return CountedFlops(
        flops_per_sample=counted.flops / samples,
        number_format=counted.number_format,
        matmul_flops_per_second=rate,
    )


def _rate(setup: TrainingSetup, number_format: str, task: CountFlops) -> float | None:
    """Return the rate of matrix products, while other processes wait."""
    AFFINITY.on_process(None)  # the rate is of the whole machine
    torch.set_num_threads(task.machine_threads)
    return matmul_rate(setup.device, number_format)
