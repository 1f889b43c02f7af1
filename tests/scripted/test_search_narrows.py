"""A search leaves out what a diagnosis, or the stages of a script, say cannot matter."""

from dataclasses import replace

import pytest

import scripted_runner
from autotune.configuration.job import Diagnose
from autotune.configuration.script import ScriptOptions
from autotune.console.progress import PlainProgress
from autotune.report.data import read_report
from autotune.searching.run.diagnosis import limits_of
from autotune.searching.run.events import (
    Answered,
    Noted,
    StagesTimed,
)
from autotune.study.archive import find_study
from autotune.values.outcome import Diagnosed, Inspected, Loading, Lost
from command_line import command
from factories import cuda_machine
from reporting import Page
from scripted_runner import (
    FACTS,
    ScriptedRunner,
    at,
    batch_of,
    events_of,
    options_in,
    trials_of,
    unstored_in,
)

SPACE = "batch_size: [8, 16, 32]\nnum_workers: [0, 1, 2]\noptimizer_impl: [null, fused]\n"
# Loading and updating take no time worth mentioning.
STAGES = Diagnosed(
    batch_size=8,
    compute_seconds=0.1,
    double_compute_seconds=0.12,
    transfer_seconds=0.0,
    loading=(Loading(0, 0.0001), Loading(2, 0.0002)),
    optimizer_seconds=0.0005,
)


def runner(stages=STAGES):
    return ScriptedRunner(lambda config, phase: at(batch_of(config)), diagnosed=stages)


def searched(folder, scripted, trials=20, storage=None):
    return events_of(options_in(folder, SPACE, trials=trials, storage=storage), scripted)


def configs(events):
    names = ("batch_size", "num_workers", "optimizer_impl")
    trials = trials_of(events)
    return [tuple(trial.config[name] for name in names) for trial in trials]


def test_settings_that_cannot_matter_are_not_searched(tmp_path):
    events = searched(tmp_path, runner())
    assert sorted(configs(events)) == [(8, 0, None), (16, 0, None), (32, 0, None)]


def test_a_person_is_told_what_bounds_and_what_is_left_out(tmp_path):
    said = []
    progress = PlainProgress(said.append)
    for event in searched(tmp_path, runner()):
        progress.show(event)
    text = "\n".join(said)
    assert "the bottleneck is computing" in text
    assert "num_workers stays 0: loading takes 0.1 % of computing" in text
    assert "optimizer_impl stays null: the optimizer takes 0.5 % of a step" in text
    assert "3 configurations remain" in text


def test_a_stream_that_workers_do_not_share_is_never_loaded_with_them(tmp_path):
    facts = replace(FACTS, workers_obstacle="all of it")
    scripted = ScriptedRunner(diagnosed=STAGES, inspected=Inspected(cuda_machine(), facts))
    events = searched(tmp_path, scripted)
    assert {workers for _, workers, _ in configs(events)} == {0}
    (timed,) = [job.task.workers for job in scripted.jobs if isinstance(job.task, Diagnose)]
    assert timed == (0,)


def test_without_a_diagnosis_everything_is_searched(tmp_path):
    wanted = options_in(tmp_path, SPACE, trials=40, storage=None)
    events = events_of(wanted, runner(Lost("no process")))
    assert len(set(configs(events))) == 18
    assert not any(isinstance(event, StagesTimed) for event in events)


def test_a_resumed_search_reads_the_diagnosis_from_the_study(tmp_path, url):
    searched(tmp_path, runner(), trials=2, storage=url)
    again = runner(replace(STAGES, loading=(Loading(0, 5.0),)))
    events = searched(tmp_path, again, storage=url)
    assert "diagnosis" not in {asked.phase for asked in again.asked}
    assert {workers for _, workers, _ in configs(events)} == {0}


def test_a_study_that_began_without_a_diagnosis_goes_on_without(tmp_path, url):
    searched(tmp_path, runner(Lost("no process")), trials=2, storage=url)
    again = runner()
    searched(tmp_path, again, trials=4, storage=url)
    assert "diagnosis" not in {asked.phase for asked in again.asked}


def test_stages_that_training_outruns_leave_nothing_out_of_a_search(tmp_path, url):
    def outrun():
        return ScriptedRunner(lambda config, phase: at(40 * batch_of(config)), diagnosed=STAGES)

    said = []
    progress = PlainProgress(said.append)
    begun = searched(tmp_path, outrun(), trials=2, storage=url)
    for event in begun:
        progress.show(event)
    text = "\n".join(said)
    assert "nothing is left out: training reaches 400 % of what computing reached by itself" in text
    assert "bottleneck" not in text
    (answered,) = [event.best for event in begun if isinstance(event, Answered)]
    assert answered.evidence.baseline.phases is None
    again = searched(tmp_path, outrun(), trials=4, storage=url)
    timed = [event for event in again if isinstance(event, StagesTimed)]
    assert [event.space.size for event in timed] == [18], "a resumed search reads the same"


WORKERS_AND_THREADS = "num_workers: [0, 2]\nnum_threads: [1, 2]\n"
OF_SCRIPT = Diagnosed(
    batch_size=16,
    compute_seconds=0.1,
    double_compute_seconds=None,
    transfer_seconds=0.0,
    loading=(Loading(0, 0.0001),),
    optimizer_seconds=0.02,
)
SEEN = replace(
    scripted_runner.SEEN,
    steps_per_second=10.0,
    samples_per_second=160.0,
    wait_share=0.001,
    stages=OF_SCRIPT,
)


def test_a_search_uses_what_was_seen_in_the_observed_run(tmp_path):
    options = options_in(tmp_path, WORKERS_AND_THREADS, script=ScriptOptions(()), trials=6)
    events = events_of(options, runner := ScriptedRunner(observed=SEEN))
    timed = next(event for event in events if isinstance(event, StagesTimed))
    assert timed.space.varied() == {"num_threads": (1, 2)}
    assert "num_workers stays 0: loading takes 0.1 % of computing" in timed.space.notes
    assert "diagnosis" not in {asked.phase for asked in runner.asked}, "no run of its own"
    assert {job.config["num_workers"] for job in runner.jobs if job.config} == {0}
    stages = events[-1].best.evidence.baseline.phases
    assert (stages.bottleneck, stages.loading) == ("computing", 160_000)
    report = read_report(find_study(str(tmp_path)))
    assert report.archive.notes.diagnosis == OF_SCRIPT
    again = events_of(options, ScriptedRunner(observed=replace(SEEN, stages=None)))
    assert any(isinstance(event, StagesTimed) for event in again), "as it was noted"


def test_the_report_of_a_search_of_a_script_draws_each_stage(tmp_path):
    seen = replace(SEEN, stages=replace(OF_SCRIPT, transfer_seconds=0.01))
    options = options_in(tmp_path, WORKERS_AND_THREADS, script=ScriptOptions(()), trials=6)
    events_of(options, ScriptedRunner(observed=seen))
    done = command("report", tmp_path, "--html", tmp_path / "report.html")
    assert done.code == 0, done.err
    words = Page((tmp_path / "report.html").read_text()).words
    place = words.index("loader, num_workers=0")
    drawn = [word for word in words[place:] if word.strip()][:12]
    rates = dict(zip(drawn[::3], drawn[2::3], strict=True))  # between them the bar's share
    assert rates == {
        "loader, num_workers=0": "160,000 →",
        "copy to device": "1,600 →",
        "compute": "160",
        "optimizer step": "800 →",
    }


def test_without_a_loader_a_search_tells_computing_and_updating(tmp_path):
    loaders = dict.fromkeys(("num_workers", "pin_memory"), "no torch DataLoader feeds training")
    seen = replace(
        SEEN,
        loaders=(),
        training_loader="",
        fixed=loaders,
        stages=replace(OF_SCRIPT, loading=(), optimizer_seconds=0.0001),
    )
    space = "optimizer_impl: [null, fused]\nnum_threads: [1, 2]\n"
    judged = ScriptOptions((), metric="accuracy ([0-9.]+)")
    options = unstored_in(tmp_path, space, script=judged, trials=6)
    events = events_of(options, ScriptedRunner(observed=seen))
    timed = next(event for event in events if isinstance(event, StagesTimed))
    assert timed.diagnosis.bound == "computing"
    assert limits_of(timed.diagnosis.stages) == pytest.approx(
        {"compute": 160.0, "optimizer step": 160_000}
    )
    assert "optimizer_impl stays null: the optimizer takes 0.1 % of a step" in timed.space.notes
    stages = events[-1].best.evidence.baseline.phases
    assert (stages.bottleneck, stages.loading, stages.computing) == ("computing", None, 160.0)


def test_without_stages_nothing_is_left_out(tmp_path):
    options = unstored_in(tmp_path, WORKERS_AND_THREADS, script=ScriptOptions(()), trials=6)
    events = events_of(options, ScriptedRunner(observed=replace(SEEN, stages=None)))
    notes = [event.text for event in events if isinstance(event, Noted)]
    why = "the phases of this script's steps cannot be separated"
    assert f"no diagnosis, searching all settings: {why}" in notes
