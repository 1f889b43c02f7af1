"""Memory that a process shares with its workers counts once."""

from __future__ import annotations

from pathlib import Path

from autotune.configuration.job import Measure, MeasurePlan
from autotune.values.outcome import Measured
from children import WORKLOADS, job_for, run_child

# Long enough for the runner to look, which it does once a second.
PLAN = MeasurePlan(warmup_steps=1, block_seconds=0.5, looks=(6,))
MIB = 1 << 20


def peak_bytes(folder: Path, workers: int) -> int:
    job = job_for(WORKLOADS / "shared_memory.py", {"num_workers": workers}, Measure(PLAN))
    outcome = run_child(folder, job)
    assert isinstance(outcome, Measured), outcome
    return outcome.measurement.peak_memory_bytes


def test_memory_that_workers_only_read_is_not_counted_for_each(tmp_path: Path) -> None:
    alone, with_workers = (peak_bytes(tmp_path / str(n), n) for n in (0, 2))
    assert alone > 256 * MIB
    assert with_workers - alone < 256 * MIB, "resident sizes would add up to twice that more"
