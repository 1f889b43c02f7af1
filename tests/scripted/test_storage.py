"""Faults of a storage are told in a line with what helps; nothing is overwritten."""

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from sqlalchemy import event

from autotune.study import storage as database
from autotune.values.errors import StorageError, UsageError
from covering import covers
from study_factories import HOLDS, finish, opened, tell


@pytest.fixture
def reopened(nine, url, tmp_path):
    """Opens the study, which has a trial."""
    tell(opened(url, nine), 80.0, HOLDS)
    return lambda: opened(url, nine)


@covers("S1")
def test_a_database_that_is_locked_is_waited_for_and_then_refused(
    reopened, url, tmp_path, monkeypatch
):
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.2)
    study = reopened()
    number, config = study.ask()
    holder = sqlite3.connect(tmp_path / "study.db")
    holder.execute("BEGIN EXCLUSIVE")
    with (
        pytest.raises(StorageError, match="Another program holds it"),
        database.storage_errors(url),
    ):
        finish(study, number, 90.0)
    holder.rollback()
    holder.close()
    study.disconnect()
    again = reopened()
    assert [trial.verdict.value for trial in again.finished()] == [80.0], "the others are there"
    assert again.take_back() == 1
    assert again.claim(9)[1] == config


@covers("S5")
def test_a_trial_that_a_full_disk_refused_is_measured_when_there_is_space_again(
    reopened, url, tmp_path
):
    study = reopened()
    number, config = study.ask()
    engine = study._storage.engine
    engine.dispose()
    pages = (tmp_path / "study.db").stat().st_size // 4096

    @event.listens_for(engine, "connect")
    def limit(connection, _):
        connection.execute(f"PRAGMA max_page_count = {pages}")

    large = {"blocks": ["x" * 2000] * 20}
    refused = pytest.raises(StorageError, match=r"full \(\d.* free there\).*Free some space")
    with refused, database.storage_errors(url):
        finish(study, number, 90.0, stored_measurement=large)
    study.disconnect()
    again = reopened()
    assert [trial.verdict.value for trial in again.finished()] == [80.0], "the others are there"
    assert again.take_back() == 1
    assert again.claim(9)[1] == config


@pytest.mark.usefixtures("url")
def test_a_database_that_cannot_be_written_is_refused(nine, tmp_path):
    url = f"sqlite:///file:{tmp_path / 'study.db'}?mode=ro&uri=true"
    with pytest.raises(StorageError, match="check its permissions"), database.storage_errors(url):
        opened(url, nine)


@covers("S12")
def test_a_network_file_system_is_known_by_the_mount_that_a_path_is_on(tmp_path, monkeypatch):
    mounts = {"/": "ext4", str(tmp_path / "home"): "nfs4", str(tmp_path / "home" / "disk"): "xfs"}
    partitions = [SimpleNamespace(mountpoint=m, fstype=t) for m, t in mounts.items()]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: partitions)
    assert database.network_file_system(tmp_path / "home" / "me" / "study.db") == "nfs4"
    assert database.network_file_system(tmp_path / "home" / "disk" / "study.db") is None
    assert database.network_file_system(tmp_path / "study.db") is None


@pytest.mark.parametrize(
    "url", ["mysql://me:x@host/db", "mysql+pymysql://me:x@host/db", "mssql://"]
)
def test_a_database_that_was_never_tried_is_refused(url):
    with pytest.raises(
        UsageError, match=r"names m.*sql, which is untested.*postgresql://"
    ) as refused:
        database.check_storage(url)
    assert ":x@" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///studies/a/study.db", Path("studies/a/study.db")),
        ("sqlite:////a.db", Path("/a.db")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
        ("postgresql://me@host/db", None),
        (None, None),
    ],
)
def test_the_file_of_a_storage(url, path):
    assert database.file_of(url) == path
