"""A slow first step fills the loader's queue; what lies ready then is not taken for its rate."""

import pytest

from autotune.configuration.job import Measure, MeasurePlan
from autotune.values.outcome import Measured
from children import WORKLOADS, job_for

PACED = WORKLOADS / "paced_loader.py"
BATCH = 8
PER_WORKER = 500.0  # samples per second
LOADERS = [(1, 2), (2, 2), (2, 8)]

UNCORRECTED = """
{source}
import time
from torch.utils.data import DataLoader

settings = dict(batch_size={batch}, num_workers={workers}, prefetch_factor={prefetch})
batches = iter(DataLoader(Paced(), **settings))
next(batches)
time.sleep(STALL_SECONDS)
start = time.perf_counter()
for _ in range({window}):
    next(batches)
raise ValueError({window} * {batch} / (time.perf_counter() - start))
"""


@pytest.mark.parametrize(("workers", "prefetch"), LOADERS)
def test_the_rate_of_a_loader_is_found_though_its_queue_was_full(
    workers, prefetch, runner, tmp_path
):
    settings = {"batch_size": BATCH, "num_workers": workers, "prefetch_factor": prefetch}
    job = job_for(PACED, settings, task=Measure(MeasurePlan()))
    outcome = runner.run(job, tmp_path)
    assert isinstance(outcome, Measured)
    assert outcome.measurement.samples_per_second == pytest.approx(workers * PER_WORKER, rel=0.05)


@pytest.mark.parametrize(("workers", "prefetch"), LOADERS)
def test_an_uncorrected_window_would_be_off_by_two_or_more(workers, prefetch, runner, tmp_path):
    """The workload can show the fault at all: a window as long as the queue measures the queue."""
    source = UNCORRECTED.format(
        source=PACED.read_text(),
        batch=BATCH,
        workers=workers,
        prefetch=prefetch,
        window=workers * prefetch,
    )
    path = tmp_path / "model.py"
    path.write_text(source)
    outcome = runner.run(job_for(path), tmp_path / "trial")
    naive = float(outcome.detail.removeprefix("ValueError: "))
    assert naive > 2 * workers * PER_WORKER
