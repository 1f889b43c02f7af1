"""A timing that nobody watched is not said to be undisturbed."""

from dataclasses import replace

import pytest
import yaml

from autotune.configuration.best_config import read_best
from autotune.searching.run.events import TrialEnded
from autotune.values.measurement import Noise
from autotune.values.outcome import Measured
from scripted_runner import ScriptedRunner, at, batch_of, events_of, unstored_in


def under_a_quota(*batch_sizes):
    """Larger batches are faster, and processes of these sizes cannot see what others use."""

    def script(config, phase):
        run = at(10 * batch_of(config)).measurement
        if batch_of(config) in batch_sizes:
            unwatched = (replace(block, noise=Noise(watched=False)) for block in run.blocks)
            run = replace(run, blocks=tuple(unwatched))
        return Measured(run)

    return ScriptedRunner(script)


@pytest.mark.parametrize("batch_sizes", [(8, 64), (8,), (64,)])
def test_the_answer_does_not_count_what_nobody_watched(batch_sizes, tmp_path):
    runner = under_a_quota(*batch_sizes)
    events = events_of(unstored_in(tmp_path, space="batch_size: [8, 64]\n"), runner)
    blocks = events[-1].best.evidence.blocks
    assert blocks.timed > 0
    assert blocks.disturbed is None
    written = yaml.safe_load(events[-1].path.read_text(encoding="utf-8"))
    assert "disturbed" not in written["evidence"]["blocks"]
    assert read_best(events[-1].path) == events[-1].best


def test_a_trial_says_that_nobody_watched_it(tmp_path):
    runner = under_a_quota(64)
    events = events_of(unstored_in(tmp_path, space="batch_size: [8, 64]\n"), runner)
    trials = [event.trial for event in events if isinstance(event, TrialEnded)]
    timed = [(batch_of(trial.config), trial.details.measurement) for trial in trials]
    told = {size: (run.disturbed_blocks, run.flags) for size, run in timed}
    assert told == {8: (0, ()), 64: (None, ("unwatched",))}
