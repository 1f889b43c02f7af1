"""Losses of an unchanged script are recorded on each device as the script has them."""

from pathlib import Path
from statistics import fmean

import pytest

from autotune.configuration.job import Job, TakeFirstSteps
from autotune.configuration.script import Script
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import FirstLosses

SCRIPT = Path(__file__).parents[1] / "scripts" / "says_its_losses.py"
STEPS = 1100


@pytest.mark.parametrize("way", ["plain", "overwritten", "scaled", "divided after scaling"])
def test_the_recorded_losses_are_those_that_the_script_has(device, way, ask, tmp_path):
    file = tmp_path / "losses.txt"
    job = Job(
        TakeFirstSteps(STEPS),
        device="auto",
        model_path=str(SCRIPT),
        script=Script((device, way, str(STEPS), str(file))),
        config=TrainingConfig.of({"num_threads": 1}).as_dict(),
        deadline_seconds=180.0,
    )
    recorded = ask(job)
    assert isinstance(recorded, FirstLosses), recorded
    told = [float(line) for line in file.read_text().splitlines()]
    passes = len(told) // STEPS
    assert recorded.backwards_per_step == pytest.approx(passes, rel=0.01)
    means = [fmean(told[n : n + passes]) for n in range(0, len(told), passes)]
    assert recorded.losses == pytest.approx(means, rel=1e-6)
    assert means[0] > 1.2 * means[-1], "it trains"
