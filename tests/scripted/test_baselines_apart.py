"""Baselines of trials and confirmation that differ by more than their noise are told of."""

from itertools import cycle

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.console.lines import answer_lines
from autotune.report.data import read_report
from autotune.searching.run.events import Answered
from autotune.study.archive import StudyPlace
from autotune.values.errors import NotSearchedEnoughError
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in, unstored_in

SPACE = "batch_size: [8, 16, 24, 32, 40, 48, 56]\n"
BEST, SECOND = 40, 56
RATES = {8: 100.0, BEST: 150.0, SECOND: 145.0}
SLOWED = 1 / 1.1
CALM, NOISY = (0.998, 1.0, 1.002), (0.88, 1.0, 1.12)


def searched(folder, runner, *first, space=SPACE):
    """Return the answer of a search, and the remarks of its report; `first` are tried first."""
    warm_start = tuple(TrainingConfig.of({"batch_size": size}) for size in first)
    options = options_in(folder, space, trials=7, warm_start=warm_start)
    answered = events_of(options, runner)[-1]
    assert isinstance(answered, Answered)
    return answered, " ".join(read_report(StudyPlace(str(options.study.storage), None)).remarks)


def slowed_at_first(noise, slowed=SLOWED):
    """The baseline's processes and trials of the best are slowed, in that noise."""
    noises = cycle(noise)

    def measure(config, phase):
        size = batch_of(config)
        slow = phase == "baseline" or (phase == "trial" and size == BEST)
        return at(RATES.get(size, 90.0) * next(noises) * (slowed if slow else 1.0))

    return measure


def test_a_tenth_is_said_where_processes_hardly_differ(tmp_path):
    runner = ScriptedRunner(slowed_at_first(CALM))
    answered, remarks = searched(tmp_path, runner, BEST, SECOND)
    told = answered.remark or ""
    assert "from 90.91 samples/s before the trials to 100" in told
    assert "drifted 10 %" in told
    assert any(told in line for line in answer_lines(answered))
    assert told in remarks


def test_a_tenth_is_not_said_where_processes_differ_by_as_much(tmp_path):
    answered, remarks = searched(tmp_path, ScriptedRunner(slowed_at_first(NOISY)), BEST, SECOND)
    assert answered.remark is None
    assert "before the trials" not in remarks


@pytest.mark.parametrize(("noise", "said"), [(CALM, True), (NOISY, False)])
def test_it_is_said_where_the_settings_are_kept_too(noise, said, tmp_path):
    noises = cycle(noise)

    def measure(config, phase):
        own = phase == "baseline" and batch_of(config) == 8
        return at(100.0 * next(noises) * (SLOWED if own else 1.0))

    space = "batch_size: [8, 16]\n"
    answered, remarks = searched(tmp_path, ScriptedRunner(measure), space=space)
    assert answered.best.keeps_baseline
    assert (answered.remark is not None) == said == ("before the trials" in remarks)


def slowed_before_the_trials(slowed):
    """Nothing is faster than 8; its first processes are slowed, in a noise of a fifth percent."""
    noises = cycle(CALM)

    def measure(config, phase):
        rate = 100.0 if batch_of(config) == 8 else 90.0
        return at(rate * next(noises) * (slowed if phase == "baseline" else 1.0))

    return measure


def test_settings_that_are_kept_have_the_speed_of_the_rounds(tmp_path):
    answered, _ = searched(tmp_path, ScriptedRunner(slowed_before_the_trials(1 / 1.3)))
    assert answered.best.keeps_baseline
    evidence = answered.best.evidence
    assert evidence.baseline.samples_per_second == pytest.approx(100.0, rel=0.01)
    assert evidence.speedup.rounds >= 4
    assert any("samples/s in the confirmation" in line for line in answer_lines(answered))


@pytest.mark.parametrize(
    ("checked", "is_refused"),
    [(0.25, False), (1.0, False), (0.5, True)],
    ids=["trials were slowed as well", "trials were corrected", "neither is known"],
)
def test_nothing_is_claimed_of_trials_beside_settings_that_were_far_slower(
    tmp_path, checked, is_refused
):
    """Before the trials the settings ran at a quarter of the speed, in checks at `checked`."""
    noises = cycle(CALM)
    slowed = {"baseline": 0.25, "anchor": checked}

    def measure(config, phase):
        rate = 100.0 if batch_of(config) == 8 else 90.0
        return at(rate * next(noises) * slowed.get(phase, 1.0))

    runner = ScriptedRunner(measure)
    many = f"batch_size: [{', '.join(str(size) for size in range(8, 200, 8))}]\n"
    options = unstored_in(tmp_path, many, trials=20)
    if not is_refused:
        assert events_of(options, runner)[-1].best.keeps_baseline
        return
    with pytest.raises(NotSearchedEnoughError, match="ran 4 times as fast in the confirmation"):
        events_of(options, runner)
    assert "anchor" in [asked.phase for asked in runner.asked]
    assert not [
        path for path in tmp_path.iterdir() if path.suffix == ".yaml" and "best" in path.name
    ]


def test_a_difference_that_matters_to_nobody_is_not_said(tmp_path):
    answered, _ = searched(tmp_path, ScriptedRunner(slowed_at_first(CALM, slowed=1 / 1.04)))
    assert answered.remark is None
