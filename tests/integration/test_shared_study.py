"""One study in several processes, in PostgreSQL and a file: no proposal twice, nothing lost."""

import threading
from contextlib import ExitStack

import pytest

from autotune.storage.leases import own_lease
from autotune.storage.note_types import Revocation
from autotune.values.errors import StorageError
from covering import covers
from held import trials_in
from sharing import in_threads, opened
from study_factories import HOLDS, finish, reported, tell


@covers("S8")
def test_many_processes_open_a_new_study_at_once(shared_storage, nine):
    everybody = threading.Barrier(6)

    def opens():
        with opened(shared_storage, nine) as study:
            claimed = study.claim(9)[1]
            everybody.wait()
            return claimed

    claimed = in_threads(*[opens] * 6)
    assert len(set(claimed)) == 6, claimed


@covers("S10")
def test_a_trial_of_another_process_comes_first_once_that_is_gone(shared_storage, nine):
    with opened(shared_storage, nine) as first:
        with opened(shared_storage, nine) as second:
            _, left = second.claim(9)
            assert first.others_run()
            assert left not in {tell(first, 1.0, HOLDS) for _ in range(3)}
        assert not first.others_run()
        assert first.claim(9)[1] == left
    states = [trial.state.name for trial in trials_in(shared_storage, "s")]
    assert states == ["FAIL", "COMPLETE", "COMPLETE", "COMPLETE", "RUNNING"]


def test_a_trial_that_another_process_told_is_read_and_counts(shared_storage, nine):
    with opened(shared_storage, nine) as first, opened(shared_storage, nine) as second:
        told = tell(second, 70.0, HOLDS)
        assert first.claim(1) is None
        assert [trial.config for trial in first.finished()] == [told]


def test_a_trial_that_was_taken_for_lost_is_told_all_the_same(shared_storage, nine):
    with opened(shared_storage, nine) as first, opened(shared_storage, nine) as second:
        number, config = first.claim(9)
        first._mutex.lease, kept = own_lease(), first._mutex.lease  # its connection was cut
        trials = second._study.get_trials()
        second._stored.give_up(trials[0].number, "interrupted: its process is gone")
        first._mutex.lease = kept
        first._running[number] = config
        told = finish(first, number, 50.0)
        assert told.number == 1
    states = [trial.state.name for trial in trials_in(shared_storage, "s")]
    assert states == ["FAIL", "COMPLETE"]


def test_a_revocation_counts_for_all_while_the_server_keeps_what_was_told(shared_storage, nine):
    with opened(shared_storage, nine) as first, opened(shared_storage, nine) as second:
        for value, kind in ((3.0, "large"), (2.0, "own")):
            finish(first, first.claim(9)[0], value, training_equivalent=kind)
        running, _ = second.claim(9)
        first.revoke("large", Revocation(0.02, "accuracy: worse"))
        finish(second, running, 1.0, training_equivalent="large")
        second.catch_up()
        seen = [[trial.verdict.feasible for trial in one.finished()] for one in (first, second)]
        assert seen[1] == [False, True, False], "the other process reads it before it claims"
    with opened(shared_storage, nine) as later:
        later.reap()
        assert [trial.verdict.feasible for trial in later.finished()] == seen[1]
    trials = trials_in(shared_storage, "s")
    assert [list(trial.constraints.values())[1] for trial in trials] == [-0.01] * 3, "as told"
    assert reported(shared_storage).incumbent.number == 1


def test_trials_that_were_taken_for_lost_and_are_told_at_once_get_numbers_of_their_own(
    shared_storage, nine
):
    with ExitStack() as stack:
        studies = [stack.enter_context(opened(shared_storage, nine)) for _ in range(6)]
        claimed = [study.claim(9) for study in studies]
        for number, _ in claimed:
            studies[0]._stored.give_up(number, "interrupted: its process is gone")
        everybody = threading.Barrier(6)

        def tells(place):
            everybody.wait()
            return finish(studies[place], claimed[place][0], 50.0).number

        numbers = in_threads(*[lambda place=place: tells(place) for place in range(6)])
    there = {trial.number: trial.user_attrs["config"] for trial in trials_in(shared_storage, "s")}
    configs = [config.as_dict() for _, config in claimed]
    assert [there[number] for number in numbers] == configs, numbers


def test_the_journal_of_a_leader_that_is_gone_makes_no_second_leader(
    shared_storage, nine, tmp_path
):
    def of_host(number):
        return opened(shared_storage, nine, journal=tmp_path / f"host-{number}")

    with of_host(1) as gone:
        gone.lead()
    with of_host(2) as leader:
        leader.lead()
        with (
            of_host(1) as again,
            pytest.raises(StorageError, match="is in use by the search of process"),
        ):
            again.lead()
