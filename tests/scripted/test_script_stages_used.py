"""The stages of an unchanged script, used by a search of it."""

from dataclasses import replace

import pytest

import scripted_runner
from autotune.configuration.script import ScriptOptions
from autotune.report.data import read_report
from autotune.searching.run.events import StagesTimed, StagesUnknown
from autotune.study.archive import find_study
from autotune.values.outcome import Diagnosed, Loading
from command_line import command
from reporting import Page
from scripted_runner import ScriptedRunner, events_of, options_in, unstored_in

SPACE = "num_workers: [0, 2]\nnum_threads: [1, 2]\n"
STAGES = Diagnosed(
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
    stages=STAGES,
)


def test_a_search_uses_what_was_seen_in_the_observed_run(tmp_path):
    options = options_in(tmp_path, SPACE, script=ScriptOptions(()), trials=6)
    events = events_of(options, runner := ScriptedRunner(observed=SEEN))
    timed = next(event for event in events if isinstance(event, StagesTimed))
    assert timed.space.varied() == {"num_threads": (1, 2)}
    assert "num_workers stays 0: loading takes 0.1 % of computing" in timed.space.notes
    assert "diagnosis" not in {asked.phase for asked in runner.asked}, "no run of its own"
    assert {job.config["num_workers"] for job in runner.jobs if job.config} == {0}
    stages = events[-1].best.evidence.baseline.stages
    assert (stages.bound, stages.loading) == ("computing", 160_000)
    report = read_report(find_study(str(tmp_path)))
    assert report.stages == STAGES
    again = events_of(options, ScriptedRunner(observed=replace(SEEN, stages=None)))
    assert any(isinstance(event, StagesTimed) for event in again), "as it was noted"


def test_the_report_of_a_search_of_a_script_draws_each_stage(tmp_path):
    seen = replace(SEEN, stages=replace(STAGES, transfer_seconds=0.01))
    options = options_in(tmp_path, SPACE, script=ScriptOptions(()), trials=6)
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
        "compute, update": "800 →",
    }


def test_without_a_loader_a_search_tells_computing_and_updating(tmp_path):
    loaders = dict.fromkeys(("num_workers", "pin_memory"), "no torch DataLoader feeds training")
    seen = replace(
        SEEN,
        loaders=(),
        training_loader="",
        fixed=loaders,
        stages=replace(STAGES, loading=(), optimizer_seconds=0.0001),
    )
    space = "optimizer_impl: [null, fused]\nnum_threads: [1, 2]\n"
    judged = ScriptOptions((), metric="accuracy ([0-9.]+)")
    options = unstored_in(tmp_path, space, script=judged, trials=6)
    events = events_of(options, ScriptedRunner(observed=seen))
    timed = next(event for event in events if isinstance(event, StagesTimed))
    assert timed.diagnosis.bound == "computing"
    assert timed.diagnosis.limits() == pytest.approx({"compute": 160.0, "compute, update": 160_000})
    assert "optimizer_impl stays null: the optimizer takes 0.1 % of a step" in timed.space.notes
    stages = events[-1].best.evidence.baseline.stages
    assert (stages.bound, stages.loading, stages.computing) == ("computing", None, 160.0)


def test_without_stages_nothing_is_left_out(tmp_path):
    options = unstored_in(tmp_path, SPACE, script=ScriptOptions(()), trials=6)
    events = events_of(options, ScriptedRunner(observed=replace(SEEN, stages=None)))
    (unknown,) = [event for event in events if isinstance(event, StagesUnknown)]
    assert "the phases of this script's steps cannot be separated" in unknown.reason
