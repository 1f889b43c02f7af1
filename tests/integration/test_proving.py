"""What leads a search is proven to be accurate the longer the search relies on it."""

from pathlib import Path

import pytest

from autotune.tuning.events import LeadLost, PhaseStarted, TrialEnded
from autotune.tuning.scene import SearchOptions
from autotune.tuning.search import search
from autotune.tuning.storing.archive import read_archive
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in

SPACE = "batch_size: [8, 32, 64]\nnum_workers: [0, 1]\n"
SCATTERED = (0.0, 0.017) * 3
"""Losses of quality by seed that six seeds do not decide, so that it is held back."""
A_SEED_FOR_NOTHING, A_SEED_FOR_HOURS = 1, 1_000_000


def runner_with(losses: tuple[float, ...]) -> ScriptedRunner:
    """Larger batches are faster; those of 64 lose so much of the quality, seed by seed."""

    def quality(config, seed):
        return 0.9 - (losses[seed] if batch_of(config) == 64 else 0.0)

    return ScriptedRunner(
        lambda config, phase: at(10 * batch_of(config) + float(config["num_workers"] or 0)), quality
    )


def options_for(folder: Path, samples: int, **changes) -> SearchOptions:
    """All six configurations, with probes of so many samples."""
    return options_in(folder, space=SPACE, trials=6, accuracy_samples=samples, **changes)


def seeds_by_phase(options: SearchOptions, runner: ScriptedRunner) -> dict[str, list[int]]:
    """Seeds with which batches of 64 were probed, by the phase in which that was."""
    seeds: dict[str, list[int]] = {}
    phase, done = "", 0
    for event in search(options, runner):
        found = [s for batch, some in runner.probes()[done:] if batch == 64 for s in some]
        seeds.setdefault(phase, []).extend(found)
        done = len(runner.probes())
        if isinstance(event, PhaseStarted):
            phase = event.phase
    seeds.setdefault(phase, []).extend(
        s for batch, some in runner.probes()[done:] if batch == 64 for s in some
    )
    return seeds


def test_a_lead_has_one_seed_until_the_search_relied_on_it_for_long(tmp_path):
    seeds = seeds_by_phase(options_for(tmp_path, A_SEED_FOR_HOURS), runner_with((0.001,) * 6))
    assert seeds["search"] == [0]
    assert seeds["confirmation"] == [1, 2]


def test_a_lead_that_lasts_is_proven_in_the_search(tmp_path):
    losses = (0.0, 0.009, 0.004, 0.003, 0.003, 0.002)
    seeds = seeds_by_phase(options_for(tmp_path, A_SEED_FOR_NOTHING), runner_with(losses))
    assert seeds["search"] == [0, 1, 2, 3], "until they decide"
    assert seeds["confirmation"] == []


def test_what_is_not_proven_leads_no_longer_nor_does_what_was_trained_alike(tmp_path):
    runner = runner_with(SCATTERED)
    options = options_for(tmp_path, A_SEED_FOR_NOTHING)
    events = events_of(options, runner)
    (lost,) = [event for event in events if isinstance(event, LeadLost)]
    assert batch_of(lost.trial.config) == 64
    assert "not proven" in lost.reason
    assert batch_of(lost.best.config) != 64
    later = [e for e in events[events.index(lost) :] if isinstance(e, TrialEnded)]
    assert all(batch_of(e.best.config) != 64 for e in later)
    archive = read_archive(options.storage)
    feasible = {batch_of(t.config) for t in archive.finished if t.verdict.feasible}
    assert feasible == {8, 32}
    reasons = {t.verdict.reason for t in archive.finished if batch_of(t.config) == 64}
    assert all("not proven" in reason for reason in reasons)
    assert events[-1].best.config["batch_size"] == 32


def test_two_seeds_that_speak_against_it_are_not_enough(tmp_path):
    losses = (0.006, 0.0125, *4 * (0.004,))  # two are beyond what is allowed on average
    events = events_of(options_for(tmp_path, A_SEED_FOR_NOTHING), runner_with(losses))
    assert not any(isinstance(event, LeadLost) for event in events)
    assert events[-1].best.config["batch_size"] == 64


def test_the_file_of_the_best_so_far_follows(tmp_path):
    options = options_for(tmp_path, A_SEED_FOR_NOTHING)
    so_far = tmp_path / "best-so-far.yaml"
    for event in search(options, runner_with(SCATTERED)):
        if isinstance(event, LeadLost):
            written = so_far.read_text() if so_far.exists() else "trial: 0\n"
            assert f"trial: {event.best.number}\n" in written
            return
    pytest.fail("nobody lost the lead")


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_other_samplers_are_told_what_is_proven(sampler, tmp_path):
    options = options_for(tmp_path, A_SEED_FOR_HOURS, sampler=sampler)
    events = events_of(options, runner_with(SCATTERED))
    assert not any(isinstance(event, LeadLost) for event in events)
    ended = [event for event in events if isinstance(event, TrialEnded)]
    refused = [e.trial for e in ended if batch_of(e.trial.config) == 64]
    assert all(0 < trial.verdict.margins["accuracy"] < 0.02 for trial in refused)
    assert all(batch_of(event.best.config) != 64 for event in ended)


def test_who_continues_a_search_knows_what_leads_no_longer(tmp_path):
    options = options_for(tmp_path, A_SEED_FOR_NOTHING)
    for event in search(options, runner_with(SCATTERED)):
        if isinstance(event, LeadLost):
            break
    again = events_of(options, runner_with(SCATTERED))
    ended = [event for event in again if isinstance(event, TrialEnded)]
    assert all(batch_of(event.best.config) != 64 for event in ended)
    assert again[-1].best.config["batch_size"] == 32
