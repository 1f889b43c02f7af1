"""Candidates that nobody can tell apart are timed again before one is put to the test."""

import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.console.answer_lines import answer_lines
from autotune.report.data import read_report
from autotune.searching.run.events import CandidateRefused, Event, RoundEnded
from autotune.searching.run.time_budget import trial_seconds
from autotune.searching.search import search
from autotune.study.archive import StudyPlace, read_archive
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.outcome import TimedOut, TrialOutcome
from scripted_runner import (
    ScriptedRunner,
    at,
    batch_of,
    changed,
    events_of,
    options_in,
    unstored_in,
)

SPACE = "num_workers: [0, 1, 2, 4]\nprefetch_factor: [1, 2, 4, 8]\n"
FASTEST = 4
LUCKY, BEST = 6, 9
"""Trials whose rate is too high, and the number of the fastest."""
MORE_BATCHES = "batch_size: [8, 48, 52, 56, 60, 64, 68]\n"
FASTEST_BATCH = 68


def rate_of(config: TrainingConfig) -> float:
    """Workers help; how far they read ahead makes no difference."""
    return 100.0 + 20.0 * float(config["num_workers"] or 0)


def searched(folder: Path, noise: float, **options: float) -> tuple[ScriptedRunner, list[Event]]:
    """A search where two processes of the same settings differ by so much."""
    random = Random(0)

    def measure(config: TrainingConfig, phase: str) -> TrialOutcome:
        return at(rate_of(config) * random.lognormvariate(0.0, noise))

    runner = ScriptedRunner(measure)
    return runner, events_of(unstored_in(folder, SPACE, trials=13, **options), runner)


def timed_again(runner: ScriptedRunner) -> Counter[str]:
    """Return how often each candidate was timed again, by its trial's number."""
    folders = (asked.folder.name for asked in runner.asked if asked.phase == "again")
    return Counter(name.partition("-")[0] for name in folders)


def test_near_candidates_are_timed_again_in_turn_if_processes_differ_much(tmp_path: Path) -> None:
    runner, events = searched(tmp_path, noise=0.1)
    again = timed_again(runner)
    assert 2 <= len(again) <= 12
    assert max(again.values()) - min(again.values()) <= 3, "in turn, until some fall behind"
    phases = [asked.phase for asked in runner.asked]
    assert phases.index("again") < phases.index("confirmation")
    assert max(i for i, phase in enumerate(phases) if phase == "trial") < phases.index("again")
    assert events[-1].best.config["num_workers"] == FASTEST


def test_once_is_enough_if_processes_hardly_differ(tmp_path: Path) -> None:
    runner, events = searched(tmp_path, noise=0.001)
    assert max(timed_again(runner).values(), default=0) <= 1
    assert events[-1].best.config["num_workers"] == FASTEST


def test_it_takes_half_as_long_as_the_trials_at_most(tmp_path: Path) -> None:
    runner, _ = searched(tmp_path, noise=0.2)
    phases = Counter(asked.phase for asked in runner.asked)
    assert 0 < phases["again"] <= phases["trial"] / 2


def test_a_candidate_that_fails_in_its_re_timing_is_not_tried_once_more(tmp_path: Path) -> None:
    random = Random(0)

    def measure(config: TrainingConfig, phase: str) -> TrialOutcome:
        if phase == "again":
            return TimedOut("warmup", 60.0)
        return at(rate_of(config) * random.lognormvariate(0.0, 0.1))

    runner = ScriptedRunner(measure)
    events_of(unstored_in(tmp_path, SPACE, trials=13), runner)
    again = timed_again(runner)
    assert again
    assert max(again.values()) == 1
    deadlines = {
        job.deadline_seconds
        for job, asked in zip(runner.jobs, runner.asked, strict=True)
        if asked.phase in ("trial", "again")
    }
    assert deadlines == {60.0}, "as a trial's"


def test_a_machine_that_slows_down_slows_nobodys_further_timings(tmp_path: Path) -> None:
    random = Random(0)
    runner = ScriptedRunner()

    def measure(config: TrainingConfig, phase: str) -> TrialOutcome:
        late = phase in ("trial", "anchor", "again") and len(runner.batches("trial")) >= 9
        rate = rate_of(config) * random.lognormvariate(0.0, 0.05)
        return at(0.5 * rate if late else rate)

    runner.measure = measure
    options = options_in(tmp_path, SPACE, trials=13)
    events_of(options, runner)
    noted = read_archive(str(options.study.storage)).notes.re_timings
    trials = {trial.number: trial for trial in read_archive(str(options.study.storage)).finished}
    assert noted
    for number, rates in noted.items():
        truth = rate_of(trials[number].config)
        assert all(0.7 * truth < rate < 1.4 * truth for rate in rates)


def about_alike(config: TrainingConfig) -> float:
    """All batches but the baseline's, the largest a little faster."""
    return {8: 100.0, FASTEST_BATCH: 550.0}.get(batch_of(config), 500.0)


def test_a_candidate_of_too_low_accuracy_takes_no_time_from_the_others(tmp_path: Path) -> None:
    random = Random(1)
    runner = ScriptedRunner(
        lambda config, phase: at(about_alike(config) * random.lognormvariate(0.0, 0.1)),
        quality=lambda config, seed: 0.8 if seed and batch_of(config) == FASTEST_BATCH else 0.9,
        seed_seconds=1000.0,  # so that trials are followed before they are validated
    )
    events = events_of(unstored_in(tmp_path, MORE_BATCHES, trials=10), runner)
    asked = [(one.phase, one.batch_size) for one in runner.asked]
    assert ("trial", FASTEST_BATCH) in asked
    assert ("again", FASTEST_BATCH) not in asked
    assert "again" in dict(asked)
    refused = [event.trial for event in events if isinstance(event, CandidateRefused)]
    assert FASTEST_BATCH in map(batch_of, (trial.config for trial in refused))


@pytest.mark.parametrize("noise", [0.1, 0.2])
def test_a_time_budget_keeps_a_tenth_for_as_many_as_that_is_enough_for(
    noise: float, tmp_path: Path
) -> None:
    random = Random(0)
    runner = ScriptedRunner(
        lambda config, phase: at(rate_of(config) * random.lognormvariate(0.0, noise))
    )
    events_of(options_in(tmp_path, SPACE, trials=13, time_budget_seconds=120.0), runner)
    again = sum(timed_again(runner).values())
    each = trial_seconds(read_archive(f"sqlite:///{tmp_path / 'study.db'}").finished[1])
    assert 0 < again * each <= 12.0


@dataclass
class Clock:
    """Seconds that go by only where a test says so."""

    now: float = field(default_factory=time.monotonic)

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of the time budget; incumbents are validated at the end, not while trials run."""
    clock = Clock()
    monkeypatch.setattr("autotune.context.budget_clock.time", clock)
    monkeypatch.setattr("autotune.searching.trials.trials.validate_incumbent", lambda *_: iter(()))
    return clock


def test_only_validated_candidates_are_timed_again_once_the_time_is_up(
    tmp_path: Path, clock: Clock
) -> None:
    random = Random(2)

    def measure(config: TrainingConfig, phase: str) -> TrialOutcome:
        clock.now += 10.0 if phase == "trial" else 0.0
        return at(about_alike(config) * random.lognormvariate(0.0, 0.1))

    runner = ScriptedRunner(measure, seed_seconds=0.0)
    space = MORE_BATCHES + "num_workers: [0, 1]\n"
    both = tuple(
        TrainingConfig.of({"batch_size": FASTEST_BATCH, "num_workers": workers})
        for workers in (0, 1)
    )
    options = unstored_in(tmp_path, space, trials=14, time_budget_seconds=150.0, warm_start=both)
    answered = events_of(options, runner)[-1]
    seeds = Counter(batch for batch, some in runner.probes() for _ in some)
    assert all(seeds[batch] >= 3 for batch in runner.batches("again"))
    assert 0 < min(seeds.values()) < 3 or set(runner.batches("trial")) > set(seeds)
    assert answered.best.config["batch_size"] != 8


def test_a_search_says_what_it_could_not_confirm_once_seeds_took_the_time(
    tmp_path: Path, clock: Clock
) -> None:
    def quality(config: TrainingConfig, seed: int) -> float:
        ended = len(runner.batches("trial")) == 4
        clock.now += 100.0 if ended else 0.0
        scattered = batch_of(config) in (32, 64) and seed % 2
        return 0.9 - (0.017 if scattered else 0.0)

    runner = ScriptedRunner(lambda config, phase: at(10.0 * batch_of(config)), quality)
    options = options_in(
        tmp_path, "batch_size: [8, 16, 24, 32, 64]\n", trials=5, time_budget_seconds=900.0
    )
    with pytest.raises(NotSearchedEnoughError, match=r"was [34].00x .* ended before") as refused:
        events_of(options, runner)
    assert "trial 3 (batch_size=64) was faster, but is inconclusive: evaluate 0.89" in str(
        refused.value
    )
    assert clock.now - time.monotonic() > 900.0
    assert runner.batches("confirmation") == []
    assert not options.study.out.exists()
    again = events_of(changed(options, time_budget_seconds=1e6), runner)
    assert again[-1].best.config["batch_size"] == 24


def test_a_continued_search_knows_what_was_timed_again(tmp_path: Path) -> None:
    random = Random(0)
    runner = ScriptedRunner(
        lambda config, phase: at(rate_of(config) * random.lognormvariate(0.0, 0.2))
    )
    options = options_in(tmp_path, SPACE, trials=13)
    running = search(options, runner)
    next(event for event in running if isinstance(event, RoundEnded))
    running.close()
    first = len(runner.batches("again"))
    events_of(options, runner)
    assert 0 < first <= len(runner.batches("again")) <= len(runner.batches("trial")) / 2


@pytest.mark.parametrize(("over_at", "ends_at"), [(4, 4), (5, 5), (6, 6), (7, 7), (9, 9)])
def test_a_confirmation_ends_within_a_round_of_the_end_of_the_time(
    over_at: int, ends_at: int, tmp_path: Path, clock: Clock
) -> None:
    def measure(config: TrainingConfig, phase: str) -> TrialOutcome:
        if phase != "confirmation" or batch_of(config) == 8:
            return at(10.0 * batch_of(config))
        rounds = sum(batch != 8 for batch in runner.batches("confirmation"))
        clock.now += 1000.0 if rounds == over_at else 0.0
        return at(70.0 if rounds == 3 else 160.0)

    runner = ScriptedRunner(measure)
    options = unstored_in(tmp_path, "batch_size: [8, 16]\n", trials=2, time_budget_seconds=900.0)
    ratios = 0
    with nullcontext() if ends_at > 5 else pytest.raises(NotSearchedEnoughError):
        for event in search(options, runner):
            ratios = len(event.ratios) if isinstance(event, RoundEnded) else ratios
        assert event.best.keeps_baseline == (ends_at < 9)
    assert ratios == ends_at


def test_what_slowed_the_trials_alone_does_not_decide_who_is_confirmed(tmp_path: Path) -> None:
    """Six trials were lucky. When they are timed again, the program that slowed all is gone."""
    tried: list[TrainingConfig] = []

    def measure(config: TrainingConfig, phase: str) -> TrialOutcome:
        if phase == "baseline":
            return at(50.0)
        if phase == "trial":
            tried.append(config)
            return at(65.0 if len(tried) <= LUCKY else 60.0 if len(tried) == BEST else 45.0)
        return at(120.0 if config == tried[BEST - 1] else 100.0)

    options = options_in(tmp_path, SPACE, trials=13)
    events = events_of(options, ScriptedRunner(measure))
    place = StudyPlace(str(options.study.storage), None)
    assert events[-1].best.training_config == tried[BEST - 1]
    told = events[-1].remark
    assert "50 samples/s before the trials to 100 in the confirmation" in told
    assert any(told in line for line in answer_lines(events[-1]))
    assert told in " ".join(read_report(place).remarks)


def test_a_baseline_as_fast_as_in_the_trials_is_not_told_of(tmp_path: Path) -> None:
    _, events = searched(tmp_path, noise=0.05)
    assert events[-1].remark is None
