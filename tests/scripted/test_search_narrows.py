"""A search begins with a diagnosis and leaves out what cannot matter, resumed ones too."""

from dataclasses import replace

from autotune.configuration.job import Diagnose
from autotune.console.progress import PlainProgress
from autotune.searching.run.events import Answered, StagesTimed, TrialEnded
from autotune.values.outcome import Diagnosed, Inspected, Loading, Lost
from factories import cuda_machine
from scripted_runner import FACTS, ScriptedRunner, at, batch_of, events_of, options_in

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
    trials = [event.trial for event in events if isinstance(event, TrialEnded)]
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
    assert "nothing is left out: training reaches 400 % of what computing alone reached" in text
    assert "bottleneck" not in text
    (answered,) = [event.best for event in begun if isinstance(event, Answered)]
    assert answered.evidence.baseline.stages is None
    again = searched(tmp_path, outrun(), trials=4, storage=url)
    timed = [event for event in again if isinstance(event, StagesTimed)]
    assert [event.space.size for event in timed] == [18], "a resumed search reads the same"
