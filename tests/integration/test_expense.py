"""A search that would spend its time on accuracy tries first what needs none."""

from pathlib import Path

import pytest

from autotune.config import TrainingConfig
from autotune.outcome import TrialOutcome
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in

SPACE = "batch_size: [8, 16, 32, 64, 128]\nnum_workers: [0, 1, 2, 4]\n"


def speed(config: TrainingConfig, phase: str) -> TrialOutcome:
    """Larger batches and workers pay."""
    return at(100 + batch_of(config) + 10 * float(config["num_workers"] or 0))


@pytest.mark.parametrize(("seed_seconds", "fewest", "most"), [(0.0, 0, 2), (10_000.0, 3, 4)])
def test_the_dearer_a_seed_the_more_is_tried_that_needs_none(
    seed_seconds: float, fewest: int, most: int, tmp_path: Path
) -> None:
    runner = ScriptedRunner(speed, seed_seconds=seed_seconds)
    events_of(options_in(tmp_path, SPACE, trials=9), runner)
    cheap = [batch for batch in runner.batches("trial") if batch == 8]
    assert fewest <= len(cheap) <= most
