"""A file that several processes share: what a crash leaves in it, and what is no such file."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from optuna.study import StudyDirection

from autotune.configuration.search_space import SearchSpace
from autotune.storage import database, shared_file
from autotune.values.errors import StorageError, UsageError
from covering import covers
from held import trials_in
from study_factories import HOLDS, finish, opened, repaired, reported, tell


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shared.log"


@pytest.fixture
def url(file: Path) -> str:
    return f"journal:///{file}"


def values(url: str) -> list[float | None]:
    return [trial.value for trial in trials_in(url, "s") if trial.state.name == "COMPLETE"]


@contextmanager
def growing_by_at_most(path: Path, size: int) -> Iterator[None]:
    """Let no file become longer than this one and `size` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@covers("S4", "S20")
def test_half_a_line_is_set_aside_by_the_next_process_that_writes(
    url: str, file: Path, nine: SearchSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file, "GRACE_SECONDS", 3)
    study = opened(url, nine)
    tell(study, 80.0, HOLDS)
    half = file.read_bytes().splitlines()[-1][:30]
    with file.open("ab") as journal:
        journal.write(half)  # the lock of the killed process stays, too
    Path(f"{file}.lock").touch()
    assert len(reported(url).trials) == 1, "reading changes nothing"
    assert file.read_bytes().endswith(half)
    tell(study, 90.0, HOLDS)
    study.disconnect()
    assert values(url) == [80.0, 90.0]
    assert Path(f"{file}.torn").read_bytes() == half + b"\n"
    assert file.stat().st_mode & 0o777 == 0o600


@covers("S5")
def test_a_full_disk_keeps_what_was_told_and_the_file_is_whole_afterwards(
    url: str, file: Path, nine: SearchSpace
) -> None:
    study = opened(url, nine)
    tell(study, 80.0, HOLDS)
    number, _ = study.ask()
    with (
        growing_by_at_most(file, 40),
        pytest.raises(StorageError, match="Free space"),
        database.storage_errors(url),
    ):
        finish(study, number, 90.0)
    assert not file.read_bytes().endswith(b"\n"), "half a line was written"
    tell(study, 95.0, HOLDS)
    study.disconnect()
    assert values(url) == [80.0, 95.0]
    assert [json.loads(line) for line in file.read_bytes().splitlines()]


@covers("S2")
def test_a_damaged_line_is_named_and_repaired_with_what_the_journal_has(
    url: str, file: Path, nine: SearchSpace, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    for value in (70.0, 80.0, 90.0):
        tell(study, value, HOLDS)
    study.disconnect()
    lines = file.read_bytes().splitlines(keepends=True)
    damaged = [*lines[:-9], b"@" * 20 + b"\n", *lines[-9:]]
    file.write_bytes(b"".join(damaged))
    advice = rf"its line {len(lines) - 8} is not readable.*`autotune repair {url}`"
    with pytest.raises(StorageError, match=advice):
        opened(url, nine, tmp_path)
    with pytest.raises(StorageError, match=advice):
        reported(url)
    assert file.read_bytes() == b"".join(damaged)
    assert "rebuilt from 3 finished trials" in repaired(url)
    assert values(url) == [70.0, 80.0, 90.0]
    assert Path(f"{file}.bak-1").read_bytes() == b"".join(damaged)


def test_repair_takes_the_readable_part_where_another_host_has_the_journal(
    url: str, file: Path, nine: SearchSpace, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    first, second = opened(url, nine, here), opened(url, nine, tmp_path / "there")
    for study, value in ((second, 70.0), (first, 80.0)):
        finish(study, study.claim(9)[0], value)
        study.disconnect()
    with file.open("ab") as journal:
        journal.write(b"{}\n")
    with pytest.raises(StorageError, match="--storage journal://"):
        reported(url)
    assert "rebuilt from 2 finished trials" in repaired(str(here), "--storage", url)
    assert sorted(map(float, filter(None, values(url)))) == [70.0, 80.0]


def test_repair_waits_for_no_worker_and_disturbs_none(
    url: str, file: Path, nine: SearchSpace, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    tell(study, 80.0, HOLDS)
    before = file.read_bytes()
    with pytest.raises(StorageError, match=rf"in use by process {os.getpid()} on "):
        repaired(url)
    study.disconnect()
    assert file.read_bytes() == before
    assert "rebuilt from 1 finished trial" in repaired(url)


@pytest.mark.parametrize(
    "content", [b"holiday photos", b"SQLite format 3\0" * 9, b'{"schema_version": 1}\n', b"[1]\n"]
)
def test_another_kind_of_file_is_refused_and_left_as_it_is(
    content: bytes, url: str, file: Path, nine: SearchSpace
) -> None:
    file.write_bytes(content)
    for use in (lambda: opened(url, nine), lambda: reported(url)):
        with pytest.raises(StorageError, match=r"shared.log is no journal of Optuna's"):
            use()
    assert file.read_bytes() == content
    assert [path.name for path in file.parent.iterdir() if "shared" in path.name] == [file.name]


def test_a_folder_is_no_file(url: str, file: Path, nine: SearchSpace) -> None:
    file.mkdir()
    with pytest.raises(StorageError, match="is no journal"):
        opened(url, nine)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, nine: SearchSpace) -> None:
    with pytest.raises(StorageError, match=rf"no folder {tmp_path}/no\. Make it"):
        opened(f"journal:///{tmp_path}/no/shared.log", nine)
    relative = tmp_path.relative_to("/")
    with pytest.raises(StorageError, match=f"four slashes, journal:////{relative}/shared.log"):
        opened(f"journal:///{relative}/shared.log", nine)


@pytest.mark.parametrize(
    "url", ["journal://", "journal:///", "journal://host/a", "journal:///a?b=c"]
)
def test_an_address_without_a_file_or_with_more_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="four slashes"):
        database.check_storage(url)


def test_a_study_that_does_not_exist_is_not_made_by_reading_it(url: str, file: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        reported(url)
    assert not file.exists()


@covers("S3")
def test_a_file_that_is_deleted_or_replaced_while_in_use_is_not_written(
    url: str, file: Path, nine: SearchSpace, tmp_path: Path
) -> None:
    study = opened(url, nine, tmp_path)
    tell(study, 80.0, HOLDS)
    file.unlink()
    with pytest.raises(StorageError), database.storage_errors(url):
        tell(study, 90.0, HOLDS)
    assert not file.exists()
    with pytest.raises(StorageError, match="was deleted while the search ran"):
        database.check_still_there(url)
    again = opened(url, nine, tmp_path)
    assert [trial.verdict.value for trial in again.finished()] == [80.0]
    with pytest.raises(StorageError, match="was replaced"), database.storage_errors(url):
        tell(study, 90.0, HOLDS)
    for one in (study, again):
        one.disconnect()


def test_a_process_that_was_stopped_while_it_wrote_goes_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, lock, synchronise = shared_file.opened(file), Path(f"{file}.lock"), os.fsync

    def stopped(descriptor: int) -> None:
        synchronise(descriptor)
        lock.unlink()  # as another process does after the grace period

    monkeypatch.setattr(os, "fsync", stopped)
    storage.create_new_study([StudyDirection.MAXIMIZE], "other")
    assert not lock.exists()


def test_a_file_system_without_locks_is_named(
    url: str, nine: SearchSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match=r"no locks for several processes .*PostgreSQL"):
        opened(url, nine)
