"""A host that loses its power ends no connection: whoever is silent for long is given up.

Each process has a row on a server with PostgreSQL, or a file beside a file that they share.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.storage import heartbeat
from autotune.storage.database import shared_file_of
from autotune.values.errors import StorageError
from children import wait_until
from covering import covers
from held import trials_in
from study_factories import finish, opened

OpenStudy = Callable[[], Any]


@pytest.fixture
def join(shared_storage: str, nine: SearchSpace) -> Iterator[OpenStudy]:
    """Opens the same study, as another process would."""
    joined: list[Any] = []

    def join() -> Any:
        joined.append(opened(shared_storage, nine, seed=len(joined)))
        return joined[-1]

    yield join
    for study in joined:
        study.disconnect()


def silence(storage: str, study: Any, seconds: float) -> None:
    """As if nothing had been heard of it for so long; its connection stays as it is."""
    if folder := leases_of(storage):
        then = time.time() - seconds
        os.utime(folder / str(study._mutex.lease.key), (then, then))
        return
    import psycopg

    with psycopg.connect(storage, autocommit=True) as connection:
        changed = connection.execute(
            "UPDATE autotune_heartbeats SET seen = clock_timestamp() - make_interval(secs => %s) "
            "WHERE lease = %s",
            (seconds, study._mutex.lease.key),
        )
        assert changed.rowcount == 1


def cut(storage: str, study: Any) -> None:
    """End the hold of the lock of its lease, as a restarted server or a firewall does."""
    if leases_of(storage):
        fcntl.flock(study._mutex._own, fcntl.LOCK_UN)
        return
    import psycopg

    with psycopg.connect(storage, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' "
            "AND (classid::bigint << 32 | objid::bigint) = %s",
            (study._mutex.lease.key,),
        ).fetchall()
    assert ended == [(True,)]


def leases_of(storage: str) -> Path | None:
    """The folder of the leases of a file that processes share; None for a server."""
    file = shared_file_of(storage)
    return None if file is None else file.with_name(f"{file.name}.workers")


def rows(storage: str) -> int:
    if folder := leases_of(storage):
        return sum(file.name.isdigit() for file in folder.iterdir())
    import psycopg

    with psycopg.connect(storage) as connection:
        (count,) = connection.execute("SELECT count(*) FROM autotune_heartbeats").fetchone()
    return int(count)


@covers("S10")
def test_a_trial_of_a_host_that_is_silent_is_given_up_and_comes_first(
    join: OpenStudy, shared_storage: str
) -> None:
    first, second = join(), join()
    number, left = first.claim(9)
    silence(shared_storage, first, heartbeat.SILENCE_SECONDS / 2)
    assert second.others_run(), "not yet"
    silence(shared_storage, first, heartbeat.SILENCE_SECONDS + 1)
    assert not second.others_run()
    assert second.claim(9)[1] == left
    finish(first, number, 50.0)  # it only slept
    states = [trial.state.name for trial in trials_in(shared_storage, "s")]
    assert states == ["FAIL", "RUNNING", "COMPLETE"]


def test_a_leader_that_is_silent_is_followed_by_another(
    join: OpenStudy, shared_storage: str
) -> None:
    first, second = join(), join()
    first.lead()
    with pytest.raises(StorageError, match="is in use by"):
        second.lead()
    silence(shared_storage, first, heartbeat.SILENCE_SECONDS + 1)
    second.lead()


@covers("S10")
def test_a_cut_connection_is_no_death(join: OpenStudy, shared_storage: str) -> None:
    first, second = join(), join()
    first.lead()
    number, config = first.claim(9)
    cut(shared_storage, first)
    assert second.others_run()
    assert second.claim(9)[1] != config
    with pytest.raises(StorageError, match="is in use by"):
        second.lead()
    assert first.claim(9) is not None, "it connects anew"
    assert finish(first, number, 50.0).number == number


def test_a_process_without_connection_and_heartbeat_is_given_up_sooner(
    join: OpenStudy, shared_storage: str
) -> None:
    first, second = join(), join()
    _, left = first.claim(9)
    cut(shared_storage, first)
    silence(shared_storage, first, heartbeat.LATE_SECONDS + 1)
    assert second.claim(9)[1] == left


def test_a_process_is_heard_of_again_and_again_and_leaves_nothing(
    shared_storage: str, monkeypatch: pytest.MonkeyPatch, nine: SearchSpace
) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.05)
    study, other = (opened(shared_storage, nine) for _ in range(2))
    lease = study._mutex.lease
    try:
        for _ in range(2):
            silence(shared_storage, study, 1e6)
            assert wait_until(lambda: other._mutex.lives(lease), seconds=30)
        assert rows(shared_storage) == 2
    finally:
        study.disconnect()
        other.disconnect()
    assert rows(shared_storage) == 0


def test_the_server_looks_for_dead_connections_itself(
    server_storage: str, nine: SearchSpace
) -> None:
    study = opened(server_storage, nine)
    engines = [study._mutex._engine, study._stored.storage.engine]
    for engine in engines:
        with engine.connect() as connection:
            told = connection.exec_driver_sql("SHOW tcp_keepalives_idle").scalar()
        assert told == "60"
    study.disconnect()


def test_what_a_killed_process_left_is_deleted_after_a_week(
    shared_storage: str, nine: SearchSpace
) -> None:
    left, other = (opened(shared_storage, nine) for _ in range(2))
    for study, days in ((left, 8), (other, 6)):
        silence(shared_storage, study, days * 24 * 3600.0)
    later = opened(shared_storage, nine)
    assert rows(shared_storage) == 2
    for study in (left, other, later):
        study.disconnect()
