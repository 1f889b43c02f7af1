"""A slow first step fills the loader's queue; what lies ready then is not taken for its rate."""

import pytest

from autotune.configuration.job import Measure, MeasurePlan
from autotune.values.outcome import Measured
from children import WORKLOADS, job_for

PACED = WORKLOADS / "paced_loader.py"
BATCH = 8
PER_WORKER = 500.0  # samples per second
LOADERS = [(1, 2), (2, 2), (2, 8)]


@pytest.mark.parametrize(("workers", "prefetch"), LOADERS)
def test_the_rate_of_a_loader_is_found_though_its_queue_was_full(
    workers, prefetch, runner, tmp_path
):
    settings = {"batch_size": BATCH, "num_workers": workers, "prefetch_factor": prefetch}
    job = job_for(PACED, settings, task=Measure(MeasurePlan()))
    outcome = runner.run(job, tmp_path)
    assert isinstance(outcome, Measured)
    assert outcome.measurement.samples_per_second == pytest.approx(workers * PER_WORKER, rel=0.05)
