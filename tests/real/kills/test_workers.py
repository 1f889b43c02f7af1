"""Several writers on PostgreSQL: nothing lost or measured twice, one on a device."""

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from autotune.context.options import WorkloadOptions
from autotune.process.common.trial_folder import make_private
from autotune.process.stop import Stop
from autotune.searching.run.events import TrialEnded
from autotune.searching.search import search
from autotune.study.study import TuningStudy
from autotune.values.errors import StudyMismatchError, UsageError
from covering import covers
from factories import cuda_machine
from held import trials_in
from scripted_runner import at, batch_of, changed, options_in
from sharing import OnDevice, host_of, in_threads, joined, searched_on

SPACE = "batch_size: [8, 16, 32, 64, 128]\nnum_workers: [0, 1, 2, 3, 4]\n"


def test_workers_share_a_search_and_measure_nothing_twice(server_storage, tmp_path):
    options = options_in(tmp_path, space=SPACE, storage=server_storage, trials=16)
    runners = [OnDevice(number, seconds=0.2) for number in range(3)]
    stop = Stop()

    def leads():
        try:
            return list(search(options, runners[0]))
        finally:
            stop.request()  # else workers would wait for a search that failed

    events = in_threads(
        leads,
        *(
            lambda number=number: list(joined(options, number, runners[number], stop))
            for number in (1, 2)
        ),
    )
    assert isinstance(events[0], list), events
    begun = trials_in(server_storage)
    trials = [trial for trial in begun if trial.state.name == "COMPLETE"]
    assert len({str(trial.user_attrs["config"]) for trial in trials}) == len(trials) == 16
    left = [trial.user_attrs["reason"] for trial in begun if trial not in trials]
    assert set(left) <= {"not needed"}, "another began the same at that moment"
    by_each = [len(runner.batches("trial")) for runner in runners]
    assert sum(by_each) == 15
    assert sum(count > 0 for count in by_each) > 1, "no turn is given in an order"
    for runner in runners[1:]:
        assert {asked.phase for asked in runner.asked} <= {
            *("inspection", "anchor", "trial", "accuracy", "gate"),
        }
    shown = [event.trial.number for event in events[0] if isinstance(event, TrialEnded)]
    told = [trial.number for trial in trials]
    assert sorted(shown) == told, "the search shows what others told"
    assert events[0][-1].best.config["batch_size"] == 128


def test_nobody_else_can_look_into_the_folder_of_a_study_on_any_host(server_storage, tmp_path):
    class Keeping(OnDevice):
        def run(self, job, folder):
            make_private(folder)  # as one that starts processes does
            return super().run(job, folder)

    options = options_in(tmp_path, storage=server_storage, trials=3)
    options = changed(options, folder=tmp_path / "studies" / "scripted")
    list(search(options, Keeping(0)))
    list(joined(options, 1, Keeping(1)))
    folders = (options.study.folder, host_of(options, 1))
    modes = [folder.stat().st_mode & 0o777 for folder in folders]
    assert modes == [0o700, 0o700]


@pytest.mark.parametrize(
    ("number", "machine", "model"),
    [(1, replace(cuda_machine(), torch="2.16.0"), None), (1, None, "# another\n")],
    ids=["machine", "model"],
)
def test_only_the_same_model_on_the_same_kind_of_machine_may_join(
    number, machine, model, server_storage, tmp_path
):
    options = options_in(tmp_path, storage=server_storage, trials=3)
    list(search(options, OnDevice(0)))
    changes = {}
    if model is not None:
        other = tmp_path / "other.py"
        other.write_text(model)
        changes["workload"] = WorkloadOptions(other)
    with pytest.raises(StudyMismatchError, match="another --study NAME"):
        list(joined(options, number, OnDevice(number, machine), **changes))


@covers("S10")
def test_a_search_that_is_killed_while_it_closes_is_continued_by_the_same_command(
    server_storage, tmp_path
):
    options = options_in(tmp_path, space=SPACE, storage=server_storage, trials=6)
    child = os.fork()
    if child == 0:
        TuningStudy.others_run = dies_once_closed
        with suppress(BaseException):
            list(search(options, OnDevice(0)))
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    before = trials_in(server_storage)
    assert [trial.state.name for trial in before] == ["COMPLETE"] * 6
    assert list(joined(options, 1, OnDevice(1))), "it is closed, so that a worker ends"
    runner = OnDevice(0)
    events = list(search(options, runner))
    assert events[-1].best.config["batch_size"] == 128
    assert runner.batches("trial") == []
    assert len(trials_in(server_storage)) == 6


def dies_once_closed(study):
    """Kill this process once the search has let no further trial begin."""
    if study.is_closed:
        os.kill(os.getpid(), signal.SIGKILL)
    return False


@covers("S12")
def test_a_file_takes_no_workers(tmp_path):
    options = options_in(tmp_path)
    with pytest.raises(UsageError, match="--device"):
        list(joined(options, 1, OnDevice(1)))


def test_devices_of_one_host_share_a_file_and_a_search(tmp_path):
    options = options_in(tmp_path, space=SPACE, trials=12, at_once=2)
    first, second = OnDevice(0), OnDevice(1)
    events = list(searched_on(options, first, second))
    trials = trials_in(options.study.storage)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 12
    assert len({str(trial.user_attrs["config"]) for trial in trials}) == 12
    assert min(len(runner.batches("trial")) for runner in (first, second)) > 2
    assert second.batches("baseline") == second.batches("confirmation") == []
    assert events[-1].best.config["batch_size"] == 128


def until_stopped(events):
    """The trials that a search shows until it heeds a stop."""
    shown = []
    try:
        for event in events:
            if isinstance(event, TrialEnded):
                shown.append(event.trial)
    except KeyboardInterrupt:
        return shown
    raise AssertionError("nobody stopped it")


def test_after_a_stop_the_trials_of_all_devices_are_shown_and_count(tmp_path):
    stop, everybody = Stop(), threading.Barrier(2)

    class Stopped(OnDevice):
        def run(self, job, folder):
            outcome = super().run(job, folder)
            if self.asked[-1].phase == "trial":
                everybody.wait(timeout=30)
                stop.request()
                time.sleep(self.late)
            return outcome

    first, second = Stopped(0, seconds=0), Stopped(1, seconds=0)
    first.late, second.late = 0.0, 0.5
    second.measure = lambda config, phase: at(5000 if phase == "trial" else 10 * batch_of(config))
    options = options_in(tmp_path, space=SPACE, trials=12, at_once=2)
    shown = until_stopped(searched_on(options, first, second, stop=stop))
    assert sorted(trial.number for trial in shown) == [0, 1, 2]
    best = max(shown, key=lambda trial: trial.verdict.value)
    assert best.verdict.value == pytest.approx(5000)
    assert f"trial: {best.number}\n" in (options.study.folder / "best-so-far.yaml").read_text()


def test_devices_that_are_not_alike_are_refused(tmp_path):
    other = OnDevice(1, replace(cuda_machine(), device_memory_bytes=1 << 30))
    with pytest.raises(UsageError, match="is not like"):
        list(searched_on(options_in(tmp_path), OnDevice(0), other))
