"""What lies between two epochs, for timings that end before an epoch does.

Without persistent workers each epoch starts its processes anew; with them it still waits for the
first batch. An epoch of one batch shows both, at the cost of loading that batch.
"""

from __future__ import annotations

from torch.utils.data import IterableDataset, Subset

from autotune.training.apply import TrainingSetup, build_loader
from autotune.training.batches import Batches, Clock, Synchronize

# In a longer epoch no boundary weighs anything.
_LONG_SECONDS = 100.0
_EPOCHS = 2


def probe_boundary(
    setup: TrainingSetup, seconds_per_sample: float, clock: Clock, synchronize: Synchronize
) -> tuple[float, ...]:
    """Seconds from the end of one epoch to the first batch of the next, as a tuple of one.

    None where training itself loads: it then waits for a first batch as for any other.
    """
    dataset = setup.loader.dataset
    if isinstance(dataset, IterableDataset) or not setup.loader.num_workers:
        return ()
    if len(dataset) * seconds_per_sample > _LONG_SECONDS:  # type: ignore[arg-type]
        return ()
    one_batch = Subset(dataset, range(setup.loader.batch_size or 1))
    loader = build_loader(setup.config, setup.workload, one_batch, seed=0)
    batches = Batches(loader, clock, synchronize)
    for _ in range(_EPOCHS):
        batches.next()
    return tuple(batches.boundary_seconds)
