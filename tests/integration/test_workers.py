"""Several writers on a real PostgreSQL: nothing lost or measured twice, no two on one device."""

import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import optuna
import pytest

from autotune.configuration.constraints import Verdict
from autotune.processes.devices import Device, devices_of
from autotune.processes.stop import Stop
from autotune.searching.confirmation.best_so_far import path_so_far
from autotune.searching.run.events import TrialEnded
from autotune.searching.search import search
from autotune.searching.trials.workers import WorkerOptions, join
from autotune.storage.database import with_driver
from autotune.storage.journal import Journal
from autotune.storage.leases import own_lease
from autotune.storage.trial_details import TrialDetails
from autotune.study.journal_sync import give_up
from autotune.study.opening import open_study
from autotune.system.trial_folder import make_private
from autotune.values.errors import StorageError, StudyMismatchError, UsageError
from autotune.values.outcome import Inspected
from covering import covers
from factories import cuda_machine
from scripted_runner import FACTS, ScriptedRunner, at, batch_of, changed, options_in
from tuning import HOLDS, THROUGHPUT, tell

SPACE = "batch_size: [8, 16, 32, 64, 128]\nnum_workers: [0, 1, 2, 3, 4]\n"


class OnDevice(ScriptedRunner):
    """A runner on a device of its own, whose trials take a moment."""

    def __init__(self, number, machine=None, seconds=0.05):
        super().__init__(lambda config, phase: at(10 * batch_of(config)))
        machine = machine or cuda_machine()
        self.inspected = Inspected(replace(machine, device=f"cuda:{number}"), FACTS)
        self.seconds = seconds

    def run(self, job, folder):
        outcome = super().run(job, folder)
        if self.asked[-1].phase == "trial":
            time.sleep(self.seconds)
        return outcome


def worker_of(options, number, **changes):
    folder = options.study.folder / f"host-{number}"
    place, model = options.study, options.workload.model_path
    made = WorkerOptions(place.name, place.storage, model, folder, Device("cuda"))
    return replace(made, **changes)


@contextmanager
def opened(storage, space):
    study = open_study("s", storage, space, THROUGHPUT)
    study.use_sampler("random", seed=0)
    yield study
    study.disconnect()


def in_threads(*actions):
    """Do all of this at once; what each of them returned, or raised."""
    results = [None] * len(actions)

    def keep(place):
        try:
            results[place] = actions[place]()
        except BaseException as error:
            results[place] = error

    threads = [threading.Thread(target=keep, args=(place,)) for place in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def trials_in(storage, name="scripted"):
    storage = optuna.storages.RDBStorage(with_driver(storage))
    trials = optuna.load_study(study_name=name, storage=storage).trials
    storage.engine.dispose()
    return trials


@covers("S8")
def test_many_processes_open_a_new_study_at_once(server_storage, nine):
    everybody = threading.Barrier(6)

    def opens():
        with opened(server_storage, nine) as study:
            claimed = study.claim(9)[1]
            everybody.wait()
            return claimed

    claimed = in_threads(*[opens] * 6)
    assert len(set(claimed)) == 6, claimed


@covers("S10")
def test_what_another_runs_is_known_until_it_is_gone_and_comes_first_then(server_storage, nine):
    with opened(server_storage, nine) as first:
        with opened(server_storage, nine) as second:
            _, left = second.claim(9)
            assert first.others_run()
            assert left not in {tell(first, 1.0, HOLDS) for _ in range(3)}
        assert not first.others_run()
        assert first.claim(9)[1] == left
    states = [trial.state.name for trial in trials_in(server_storage, "s")]
    assert states == ["FAIL", "COMPLETE", "COMPLETE", "COMPLETE", "RUNNING"]


def test_what_another_told_is_read_and_counts(server_storage, nine):
    with opened(server_storage, nine) as first, opened(server_storage, nine) as second:
        told = tell(second, 70.0, HOLDS)
        assert first.claim(1) is None
        assert [trial.config for trial in first.finished()] == [told]


def test_a_trial_that_was_taken_for_lost_is_told_all_the_same(server_storage, nine):
    with opened(server_storage, nine) as first, opened(server_storage, nine) as second:
        number, config = first.claim(9)
        first._mutex.lease, kept = own_lease(), first._mutex.lease  # its connection was cut
        trials = second._study.get_trials()
        give_up(second._study, trials[0].number, "interrupted: its process is gone")
        first._mutex.lease = kept
        first._running[number] = config
        told = first.tell(number, Verdict(50.0, HOLDS, ""), TrialDetails())
        assert told.number == 1
    states = [trial.state.name for trial in trials_in(server_storage, "s")]
    assert states == ["FAIL", "COMPLETE"]


def test_trials_that_were_taken_for_lost_and_are_told_at_once_get_numbers_of_their_own(
    server_storage, nine
):
    with ExitStack() as stack:
        studies = [stack.enter_context(opened(server_storage, nine)) for _ in range(6)]
        claimed = [study.claim(9) for study in studies]
        for number, _ in claimed:
            give_up(studies[0]._study, number, "interrupted: its process is gone")
        everybody = threading.Barrier(6)

        def tells(place):
            everybody.wait()
            verdict = Verdict(50.0, HOLDS, "")
            return studies[place].tell(claimed[place][0], verdict, TrialDetails()).number

        numbers = in_threads(*[lambda place=place: tells(place) for place in range(6)])
    there = {trial.number: trial.user_attrs["config"] for trial in trials_in(server_storage, "s")}
    configs = [config.as_dict() for _, config in claimed]
    assert [there[number] for number in numbers] == configs, numbers


def test_workers_share_a_search_and_measure_nothing_twice(server_storage, tmp_path):
    options = options_in(tmp_path, space=SPACE, storage=server_storage, trials=16)
    runners = [OnDevice(number) for number in range(3)]
    stop = Stop()

    def leads():
        try:
            return list(search(options, runners[0]))
        finally:
            stop.request()  # else workers would wait for a search that failed

    events = in_threads(
        leads,
        *(
            lambda number=number: list(join(worker_of(options, number), runners[number], stop))
            for number in (1, 2)
        ),
    )
    assert isinstance(events[0], list), events
    trials = trials_in(server_storage)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 16
    assert len({str(trial.user_attrs["config"]) for trial in trials}) == 16
    by_each = [len(runner.batches("trial")) for runner in runners]
    assert sum(by_each) == 15
    assert min(by_each) > 0
    for runner in runners[1:]:
        assert {asked.phase for asked in runner.asked} <= {
            "inspection",
            "anchor",
            "trial",
            "accuracy",
            "gate",
        }
    shown = [event.trial.number for event in events[0] if isinstance(event, TrialEnded)]
    assert sorted(shown) == list(range(16)), "the search shows what others told"
    assert events[0][-1].best.config["batch_size"] == 128


def test_nobody_else_can_look_into_the_folder_of_a_study_on_any_host(server_storage, tmp_path):
    class Keeping(OnDevice):
        def run(self, job, folder):
            make_private(folder)  # as one that starts processes does
            return super().run(job, folder)

    options = options_in(tmp_path, storage=server_storage, trials=3)
    options = changed(options, folder=tmp_path / "studies" / "scripted")
    list(search(options, Keeping(0)))
    joined = worker_of(options, 1)
    list(join(joined, Keeping(1), Stop()))
    modes = [folder.stat().st_mode & 0o777 for folder in (options.study.folder, joined.folder)]
    assert modes == [0o700, 0o700]


def test_one_process_leads(server_storage, tmp_path):
    options = options_in(tmp_path, space=SPACE, storage=server_storage, trials=8)
    begun = threading.Event()

    class Signalling(OnDevice):
        def run(self, job, folder):
            if folder.parent.name == "trials" and folder.name.isdigit():
                begun.set()
            return super().run(job, folder)

    def second():
        begun.wait()
        return list(search(options, OnDevice(1)))

    first, refused = in_threads(lambda: list(search(options, Signalling(0, seconds=0.3))), second)
    assert not isinstance(first, BaseException), first
    assert isinstance(refused, StorageError)
    assert "is in use by the search of process" in str(refused)


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
        changes["model_path"] = tmp_path / "other.py"
        changes["model_path"].write_text(model)
    joined = join(worker_of(options, number, **changes), OnDevice(number, machine), Stop())
    with pytest.raises(StudyMismatchError, match="--allow-mixed"):
        list(joined)


def test_another_kind_of_machine_has_a_ranking_of_its_own(server_storage, tmp_path):
    other = replace(cuda_machine(), torch="2.16.0")
    options = options_in(tmp_path, storage=server_storage, trials=3)
    list(search(options, OnDevice(0)))
    forced = changed(options, force=True)
    list(search(forced, OnDevice(0, other)))
    joining = worker_of(options, 1, allow_mixed=True)
    events = list(join(joining, OnDevice(1, other), Stop()))
    assert events[0].context.options.study.name.startswith("scripted@")
    assert len(trials_in(server_storage)) == 3


def test_the_journal_of_a_leader_that_is_gone_makes_no_second_leader(
    server_storage, nine, tmp_path
):
    def of_host(number):
        journal = Journal(tmp_path / f"host-{number}")
        return open_study("s", server_storage, nine, THROUGHPUT, journal)

    gone = of_host(1)
    gone.lead()
    gone.disconnect()
    leader = of_host(2)
    leader.lead()
    again = of_host(1)
    with pytest.raises(StorageError, match="is in use by the search of process"):
        again.lead()
    again.disconnect()
    leader.disconnect()


@covers("S12")
def test_a_file_takes_no_workers(tmp_path):
    options = options_in(tmp_path)
    with pytest.raises(UsageError, match="--devices"):
        list(join(worker_of(options, 1), OnDevice(1), Stop()))


def test_devices_of_one_host_share_a_file_and_a_search(tmp_path):
    options = options_in(tmp_path, space=SPACE, trials=12, at_once=2)
    first, second = OnDevice(0), OnDevice(1)
    events = list(search(options, first, None, {Device("cuda:1"): second}))
    trials = optuna.load_study(study_name="scripted", storage=options.study.storage).trials
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
    shown = until_stopped(search(options, first, stop, {Device("cuda:1"): second}))
    assert sorted(trial.number for trial in shown) == [0, 1, 2]
    best = max(shown, key=lambda trial: trial.verdict.value)
    assert best.verdict.value == pytest.approx(5000)
    assert f"trial: {best.number}\n" in path_so_far(options).read_text()


def test_devices_that_are_not_alike_are_refused(tmp_path):
    other = OnDevice(1, replace(cuda_machine(), device_memory_bytes=1 << 30))
    with pytest.raises(UsageError, match="is not like"):
        list(search(options_in(tmp_path), OnDevice(0), None, {Device("cuda:1"): other}))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cuda:0,cuda:0", "two trials at once"),
        ("cuda:0,cpu:0", "several kinds"),
        ("cpu:0,cpu:4000", "may not use"),
        ("cpu:x", "is no device"),
        ("", "is no device"),
    ],
)
def test_devices_that_make_no_sense_are_refused(text, fault):
    with pytest.raises(UsageError, match=fault):
        devices_of(text)
