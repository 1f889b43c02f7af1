"""Values that a search does not try, because of its trials or because an earlier run did not."""

import pytest

from autotune.configuration.job import Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.events import TrialEnded
from autotune.values.outcome import Crashed, NonFinite
from scripted_runner import (
    ScriptedRunner,
    at,
    batch_of,
    changed,
    events_of,
    options_in,
    unstored_in,
)

SPACE = "batch_size: [8, 16, 32]\nnum_workers: [0, 1, 2]\n"


def speed(config, phase):
    """Larger batches are faster, workers a little."""
    return at(10 * batch_of(config) + float(config["num_workers"] or 0))


def tried(events):
    return [event.trial.config for event in events if isinstance(event, TrialEnded)]


def test_what_trains_like_a_refused_trial_is_not_tried(tmp_path):
    """The first seed of batches of 32 is good, further ones are not."""

    def quality(config, seed):
        return 0.5 if batch_of(config) == 32 and seed else 0.9

    begin = ((32, 0), (8, 1), (8, 2), (16, 0), (16, 1), (16, 2))
    first = tuple(TrainingConfig.of({"batch_size": b, "num_workers": w}) for b, w in begin)
    space = "batch_size: [8, 16, 32]\nnum_workers: [0, 1, 2, 4]\n"
    options = options_in(tmp_path, space, trials=12, warm_start=first)
    events = events_of(options, ScriptedRunner(speed, quality))
    sizes = [batch_of(config) for config in tried(events)]
    assert [sizes.count(size) for size in (8, 16, 32)] == [4, 4, 1]
    again = events_of(changed(options, trials=14), ScriptedRunner(speed, quality))
    assert not tried(again), "nothing is left, and the study remembers"


@pytest.mark.parametrize("fails", ["probe", "trial"])
def test_what_one_trial_met_alone_says_nothing_of_the_others(tmp_path, fails):
    """A crash of its probe, or a loss that is no number, with two workers only."""

    def measure(config, phase):
        bad = fails == "trial" and phase == "trial" and config["num_workers"] == 2
        return NonFinite("loss is nan") if bad else speed(config, phase)

    def instead(job, outcome):
        bad = fails == "probe" and isinstance(job.task, Probe) and job.task.seeds == (0,)
        return Crashed("signal 11") if bad and job.config["batch_size"] == 16 else outcome

    options = unstored_in(tmp_path, SPACE, trials=9)
    configs = tried(events_of(options, ScriptedRunner(measure, instead=instead)))
    assert {config["num_workers"] for config in configs} == {0, 1, 2}
    assert len(configs) == 9, "each configuration is tried"
