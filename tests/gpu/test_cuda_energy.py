"""The energy of the GPU in the blocks is counted where NVML is there."""

import pytest

from autotune.configuration.job import Measure
from autotune.values.outcome import Measured
from gpus import CUDA, QUICK, cuda_only, job_on


@cuda_only("it reads the counter of a GPU")
def test_each_block_has_the_energy_that_the_gpu_used_in_it(ask):
    pynvml = pytest.importorskip("pynvml")
    pynvml.nvmlInit()
    outcome = ask(job_on(CUDA, Measure(QUICK)))
    assert isinstance(outcome, Measured), outcome
    each, rate = outcome.measurement.joules_per_sample, outcome.measurement.samples_per_second
    assert each is not None
    most = pynvml.nvmlDeviceGetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(0))
    assert 0 < each * rate < 1.2 * most / 1000, "no more watts than the GPU may take"
