"""What a search does not try, because of what its trials showed."""

from __future__ import annotations

from autotune.searching.run.events import TrialEnded
from scripted_runner import ScriptedRunner, at, batch_of, changed, events_of, options_in

SPACE = "batch_size: [8, 16, 32]\nnum_workers: [0, 1, 2]\n"


def worse_from(least: int) -> ScriptedRunner:
    """Larger batches are faster, workers a little; batches of at least so many train worse."""

    def measure(config, phase):
        return at(10 * batch_of(config) + float(config["num_workers"] or 0))

    return ScriptedRunner(measure, lambda config, seed: 0.5 if batch_of(config) >= least else 0.9)


def test_what_trains_like_one_that_trains_worse_is_not_tried(tmp_path):
    options = options_in(tmp_path, SPACE, trials=9)
    events = events_of(options, worse_from(32))
    tried = [batch_of(event.trial.config) for event in events if isinstance(event, TrialEnded)]
    assert tried.count(32) == 1, "its workers change nothing in training"
    assert tried.count(16) == 3
    assert events[-1].best.config["batch_size"] == 16
    again = events_of(changed(options, trials=12), worse_from(32))
    assert not [event for event in again if isinstance(event, TrialEnded)], "nothing is left"
