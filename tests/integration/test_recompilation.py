"""A compilation after the warm-up is counted, as the compiler itself reports it."""

from pathlib import Path

from autotune.values.outcome import Measured
from children import WORKLOADS, job_for, run_child


def test_a_model_that_is_compiled_again_while_it_is_timed_is_flagged(tmp_path: Path) -> None:
    job = job_for(WORKLOADS / "recompiles.py", {"compile_mode": "default"})
    outcome = run_child(tmp_path, job)
    assert isinstance(outcome, Measured), outcome
    run = outcome.measurement
    assert "recompiled" in run.flags
    assert run.compile_seconds > 0
    slowest = max(block.seconds for block in run.blocks)
    assert slowest < run.compile_seconds, "no block that counts holds a compilation"
