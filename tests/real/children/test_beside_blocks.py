"""While a child times blocks, the parent does next to nothing, and yet nothing escapes it."""

import os
import sys
from pathlib import Path

import pytest

from autotune.configuration.job import Measure, MeasurePlan
from autotune.values.outcome import Measured, OutOfMemory
from children import WORKLOADS, ended_as, shared_job
from tiers import late

MIB = 1 << 20


def timing(blocks, seconds=0.1):
    """So many blocks, however equal and however disturbed they are."""
    plan = MeasurePlan(1, seconds, (blocks,), precision=0.0, max_seconds=600.0, most_disturbed=0)
    return Measure(plan)


class _Watch:
    """Return the files that this process reads while a child is in a phase.

    Hooks for audits cannot be removed.
    """

    def __init__(self):
        self.phase: Path | None = None
        self.read: list[tuple[str, str]] = []
        self._here = False
        sys.addaudithook(self._note)

    def _note(self, event, arguments):
        if self.phase is None or self._here or event not in ("open", "os.listdir", "os.scandir"):
            return
        self._here = True
        try:
            path = os.fsdecode(arguments[0] or ".") if not isinstance(arguments[0], int) else ""
            if path.startswith("/proc"):
                self.read.append((self.phase.read_text(), path))
        except OSError:
            pass  # the child has entered no phase yet
        finally:
            self._here = False


@pytest.fixture(scope="module")
def watch():
    return _Watch()


@pytest.mark.parametrize("workers", [late(0), 2])
def test_the_parent_reads_no_shared_pages_and_walks_no_processes_beside_blocks(
    workers, watch, runner, tmp_path
):
    job = shared_job(
        WORKLOADS / "grows_late.py",
        {"num_workers": workers},
        timing(blocks=30),
        memory_limit_bytes=8192 * MIB,
    )
    watch.phase, watch.read = tmp_path / "trial" / "phase", []
    try:
        outcome = runner.run(job, tmp_path / "trial")
    finally:
        watch.phase = None
    assert isinstance(outcome, Measured), outcome
    beside = [path for phase, path in watch.read if phase == "measure"]
    assert sum(path.endswith("/statm") for path in beside) >= 2, "it looked at the child"
    dear = [path for path in beside if "smaps" in path or path.rstrip("/") == "/proc"]
    # When the child has ended, once for all that it may have left behind, the parent walks all.
    assert not [path for path in dear if "smaps" in path]
    assert len(dear) <= 2, dear


def test_a_limit_that_is_passed_beside_blocks_ends_the_child(runner, tmp_path):
    job = shared_job(
        WORKLOADS / "grows_late.py",
        {"batch_size": 9},
        timing(blocks=2000),
        memory_limit_bytes=800 * MIB,
    )
    outcome = ended_as(OutOfMemory, runner.run(job, tmp_path / "trial"))
    assert outcome.peak_bytes > 800 * MIB
    assert outcome.during == ""
    assert (tmp_path / "trial" / "phase").read_text() == "measure"


def test_the_time_of_workers_beside_blocks_is_measured(runner, tmp_path):
    peaks = []
    for task in (timing(6, seconds=0.02), timing(40)):
        job = shared_job(WORKLOADS / "grows_late.py", {"num_workers": 2}, task)
        peaks.append(runner.run(job, tmp_path / "trial").measurement.peak_memory_bytes)
    # Where other processes on this machine use the same libraries, their share is not counted.
    assert 700 * MIB < peaks[1] - peaks[0] < 1600 * MIB
