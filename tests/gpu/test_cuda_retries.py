"""The allocator that has to free its cache and try again is noticed."""

from pathlib import Path

import pytest

from autotune.configuration.job import Measure
from autotune.values.outcome import Measured
from covering import covers
from factories import TINY_CONV
from gpus import QUICK, job_on

RETRIES = Path(__file__).parent.parent / "workloads" / "retries.py"
LIMIT = 1 << 30  # of libraries' workspaces alone, a large GPU may hold 100 MiB


@covers("T3")
@pytest.mark.parametrize("model", [TINY_CONV, RETRIES], ids=lambda path: path.stem)
def test_retries_are_counted_where_there_are_any(model, device, ask):
    """A CPU has no such allocator; its limit is the whole process's, which would not fit."""
    on_cpu = device == "cpu"
    outcome = ask(job_on(device, Measure(QUICK), model, None if on_cpu else LIMIT))
    assert isinstance(outcome, Measured), outcome
    assert bool(outcome.measurement.allocator_retries) is (model == RETRIES and not on_cpu)
