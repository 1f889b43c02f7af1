"""A search says beforehand which trial begins, and how long it will still take."""

from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest
from optuna.trial import TrialState

from autotune.comparison.rounds import PLAN as ROUND
from autotune.context.options import SearchOptions
from autotune.context.search_context import SearchContext
from autotune.context.workload import traits_of_model
from autotune.process.stop import Clock
from autotune.searching.run.events import PhaseStarted, RoundEnded, TrialEnded, TrialStarted
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.time_budget import LIMITS_SECONDS, in_a_round
from autotune.searching.search import search
from autotune.values.measurement import Block
from factories import IMAGE_FACTS, cpu_machine, measurement
from finished_study import runner
from scripted_runner import ScriptedRunner, changed, events_of, trials_of, unstored_in
from study_factories import add, study_of


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """A whole search with a diagnosis."""
    return events_of(unstored_in(tmp_path_factory.mktemp("told"), storage=None), runner())


def test_each_trial_is_announced_before_it_is_measured(events):
    announced = [event for event in events if isinstance(event, TrialStarted)]
    ended = trials_of(events)[1:]
    assert [(one.number, one.config) for one in announced] == [(t.number, t.config) for t in ended]
    for one, trial in zip(announced, ended, strict=True):
        place = next(
            i for i, e in enumerate(events) if isinstance(e, TrialEnded) and e.trial == trial
        )
        assert events[place - 1] == one


def test_stopping_at_the_announcement_leaves_no_trial_running(tmp_path, url):
    options = unstored_in(tmp_path, storage=url)
    for event in (running := search(options, runner())):
        if isinstance(event, TrialStarted):
            break
    running.close()
    study = optuna.load_study(study_name=options.study.name, storage=options.study.storage)
    last, again = study.trials[-2:]
    assert (last.state, last.user_attrs["reason"]) == (TrialState.FAIL, "interrupted")
    assert again.state == TrialState.WAITING


def session_with(nine, folder, seconds):
    """A search of nine trials, of which the baseline and these are done."""
    options = SearchOptions.of(
        model_path=Path("model.py"),
        study="s",
        storage=None,
        folder=folder,
        out=folder / "best.yaml",
    )
    first, *others = nine.configurations()
    study = study_of(nine)
    for config, each in zip((first, *others), (1.0, *seconds), strict=False):
        add(study, config, 80.0, seconds=each, timing_seconds=1.0)
    study.notes.run_seconds = 1.0
    context = SearchContext(
        options, cpu_machine(), traits_of_model(IMAGE_FACTS), first, nine, 9, 1 << 32
    )
    return SearchRun(context, ScriptedRunner(), study)


def test_one_slow_trial_does_not_make_all_that_come_look_slow(nine, tmp_path):
    usual = session_with(nine, tmp_path, [2.0, 2.0, 2.0]).time_budget.eta_seconds()
    assert session_with(nine, tmp_path, [2.0, 2.0, 300.0]).time_budget.eta_seconds() == usual
    slower = session_with(nine, tmp_path, [3.0, 3.0, 3.0]).time_budget.eta_seconds()
    assert slower - usual == pytest.approx(5 * 1.0), "five trials are left"


def conclusion_seconds(nine, folder, blocks):
    """Return the estimate of a search whose baseline took a second beside these blocks."""
    seconds = 1.0 + sum(blocks)
    run = replace(measurement(), blocks=tuple(Block(each, 32, 0.0) for each in blocks))
    study = study_of(nine)
    own = next(nine.configurations())
    add(study, own, 80.0, seconds=seconds, stored_measurement=asdict(run))
    study.notes.run_seconds = seconds
    return replace(session_with(nine, folder, []), study=study).time_budget.conclusion_seconds()


def test_a_round_is_expected_to_time_as_long_as_rounds_do(nine, tmp_path):
    usual = conclusion_seconds(nine, tmp_path, [0.25] * 6)
    assert conclusion_seconds(nine, tmp_path, [0.1] * 6) == pytest.approx(usual)
    assert conclusion_seconds(nine, tmp_path, [0.25] * 25) == pytest.approx(usual)


def test_a_round_of_slow_steps_takes_three_blocks_of_them(nine, tmp_path):
    usual = conclusion_seconds(nine, tmp_path, [0.25] * 6)
    slow = conclusion_seconds(nine, tmp_path, [5.0] * 6)
    assert slow - usual == pytest.approx(6 * 2 * (3 * 5.0 - 1.5)), "six rounds of two"


def test_devices_share_the_trials_that_are_left(nine, tmp_path):
    one = session_with(nine, tmp_path, [2.0])
    options = changed(one.context.options, at_once=2)
    two = replace(one, context=replace(one.context, options=options))
    assert one.time_budget.eta_seconds() - two.time_budget.eta_seconds() == pytest.approx(
        7 * 2.0 / 2
    )


def both_trainings(nine):
    """The trainings of the baseline and of the trial that leads, as a study names them."""
    own, *_, best = nine.configurations()
    return own.quality_key(), best.quality_key()


def with_a_best(nine, folder, seconds, compiling=0.0, budget=1000.0, qualities=(), **notes):
    """A search whose second trial leads, of which so many seconds went into compiling."""
    study = study_of(nine)
    own, *_, best = nine.configurations()
    add(study, own, 80.0, seconds=1.0)
    run = asdict(replace(measurement(90.0), compile_seconds=compiling))
    add(study, best, 90.0, seconds=seconds, stored_measurement=run)
    study.notes.qualities.update(qualities)
    for key, value in {"run_seconds": 1.0, **notes}.items():
        setattr(study.notes, key, value)
    search = session_with(nine, folder, [])
    context = replace(search.context, time_budget_seconds=budget)
    return replace(search, study=study, context=context, clock=Clock(budget))


def test_a_compiled_model_is_not_compiled_again_in_every_round(nine, tmp_path):
    # The choice takes a tenth of this budget, and half of the trials' seconds of a large one.
    known = {"budget": 10.0, "qualities": {kind: [1.0] * 3 for kind in both_trainings(nine)}}
    eager = with_a_best(nine, tmp_path, 6.0, **known).time_budget.conclusion_seconds()
    compiled = with_a_best(nine, tmp_path, 24.0, 20.0, **known).time_budget.conclusion_seconds()
    assert compiled == pytest.approx(eager), "two of twenty seconds the second time"


@pytest.mark.parametrize(
    ("own", "others", "seeds"),
    [
        ([1.0] * 3, [1.0] * 3, 0),
        ([1.0], [1.0], 2 + 2),
        ([1.0], [0.995], 5 + 5),
        ([1.0] * 3, [1.0] * 2, 1),
        ([1.0] * 3, [], 3 + 6),
        ([1.0] * 3, [0.9, 1.0, 1.1], 3 + 3),
        ([1.0] * 3, [0.9, 1.0, 1.1, 1.0], 3 + 2),
        ([1.0] * 6, [0.9, 1.0, 1.1] * 2, 0),
    ],
)
def test_time_is_kept_for_six_seeds_unless_fewer_probably_decide(
    nine, tmp_path, own, others, seeds
):
    def seconds(*known):
        notes = {"qualities": dict(zip(both_trainings(nine), known, strict=True))}
        found = with_a_best(nine, tmp_path, 6.0, **notes, seed_seconds=5.0)
        return found.time_budget.conclusion_seconds()

    assert seconds(own, others) - seconds([1.0] * 3, [1.0] * 3) == pytest.approx(seeds * 5.0)


@pytest.mark.parametrize(
    ("needed", "seconds"),
    [([], 2 * 6 * 5.0), ([1600.0], 2 * 5 * 5.0), ([400.0], 0.5 * 5 * 5.0), ([800.0] * 3, 3 * 5.0)],
)
def test_seeds_to_a_loss_take_as_many_samples_as_the_known_ones_and_twice_the_usual_at_most(
    nine, tmp_path, needed, seconds
):
    own, other = both_trainings(nine)
    notes = {"qualities": {own: [1.0] * 6, other: [1.0] * len(needed)}, "seed_seconds": 5.0}
    notes |= {"probe_samples": 1000}
    found = with_a_best(nine, tmp_path, 6.0, **notes)
    options = changed(found.context.options, objective="time-to-loss")
    to_loss = replace(found, context=replace(found.context, options=options))
    found.study.notes.needed.update({own: [800.0] * 6, **({other: needed} if needed else {})})
    (*_, best) = found.study.finished()
    assert to_loss.time_budget.seeds_seconds(best) == pytest.approx(seconds)


def test_before_the_trials_what_is_left_of_a_time_budget_is_told(tmp_path):
    for budget in (None, 150.0):
        options = unstored_in(tmp_path / str(budget), time_budget_seconds=budget)
        events = events_of(options, runner())
        first = [event for event in events if isinstance(event, PhaseStarted)][:2]
        assert [event.phase for event in first] == ["baseline", "diagnosis"]
        for event in first:
            assert (event.eta_seconds is None) == (budget is None)
            assert 0 < (event.eta_seconds or 1.0) <= 150


def test_rounds_say_how_long_it_takes_until_the_next_look(tmp_path, monkeypatch):
    # Ten seconds pass whenever the clock is looked at, which is before and after each round.
    clock = SimpleNamespace(monotonic=count(step=10).__next__)
    monkeypatch.setattr("autotune.searching.confirmation.confirm.time", clock)
    events = events_of(unstored_in(tmp_path, storage=None), runner())
    etas = [event.eta_seconds for event in events if isinstance(event, RoundEnded)]
    assert etas == [10 * left + LIMITS_SECONDS for left in (5, 4, 3, 0)], "won early"


def test_a_round_is_estimated_with_the_longer_warm_up_of_its_two_sides():
    run = replace(measurement(100.0), warmup_samples=100)
    alone = in_a_round(run, 5.0)
    assert in_a_round(run, 5.0, warmup_samples=50) == alone
    assert in_a_round(run, 5.0, warmup_samples=200) == pytest.approx(alone + 1.0)
    assert in_a_round(run, 5.0, warmup_samples=10_000) == pytest.approx(alone + ROUND.max_seconds)
