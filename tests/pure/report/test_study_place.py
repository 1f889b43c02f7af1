"""A study is named in several ways, and shown by a dashboard that answers this machine alone."""

import json
from pathlib import Path
from wsgiref.util import setup_testing_defaults

import pytest

from autotune.report.dashboard import guarded, serve
from autotune.study.archive import StudyPlace, find_study
from autotune.values.errors import StorageError, UsageError
from autotune.values.text import folder_name
from databases import empty_database
from needs import installed


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in which somebody searched for "mine" and "a/b"; the current one."""
    for name in ("mine", "a/b"):
        place = tmp_path / "studies" / folder_name(name)
        place.mkdir(parents=True)
        empty_database(place / "study.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "source", ["mine", "studies/mine/", "studies/mine/study.db", "sqlite:///studies/mine/study.db"]
)
def test_a_study_and_its_answer_are_found_by_name_folder_file_and_url(folder, source):
    assert find_study(source) == StudyPlace("sqlite:///studies/mine/study.db", None)
    assert find_study(source).folder == folder / "studies" / "mine"
    answer = Path("studies", "mine", "best.yaml")
    answer.touch()
    assert find_study(source) == StudyPlace("sqlite:///studies/mine/study.db", answer)


def test_a_name_that_is_no_folder_name_is_found_all_the_same(folder):
    place = find_study("a/b")
    assert place.folder == folder / "studies" / folder_name("a/b")


def test_without_a_name_it_is_the_only_one_here(folder):
    with pytest.raises(UsageError, match=r"Studies here: .*mine"):
        find_study(None)
    (folder / "studies" / folder_name("a/b") / "study.db").unlink()
    (folder / "mine").mkdir()
    (folder / "mine" / "best.yaml").touch()  # a model's folder of the same name
    assert find_study(None) == find_study("studies/mine")
    (folder / "studies" / "mine" / "study.db").unlink()
    with pytest.raises(UsageError, match="There is none"):
        find_study(None)


def test_a_database_server_has_no_folder_and_its_password_is_not_shown():
    installed("psycopg")
    place = find_study("postgresql://me:secret@host/name")
    assert place.folder is None
    assert "secret" in str(place.url)
    assert "secret" not in place.shown


def test_the_folder_of_a_model_does_not_hide_the_study_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (Path("mnist"), Path("studies", "mnist")):
        folder.mkdir(parents=True)
    Path("mnist", "model.py").touch()
    Path("studies", "mnist", "study.db").touch()
    assert find_study("mnist") == StudyPlace("sqlite:///studies/mnist/study.db", None)
    Path("mnist", "best.yaml").touch()
    assert find_study("mnist") == StudyPlace(None, Path("mnist", "best.yaml"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere", ["'nowhere'", "neither nowhere nor studies/nowhere", "Name a study"]),
        ("empty", ["neither empty nor studies/empty", "a directory with study.db or best.yaml"]),
        ("mine", ["`autotune search` makes one"]),
        ("://", ["is not a storage URL"]),
        ("postgresql://me:secret@host:no port/name", ["is not a storage URL"]),
    ],
)
def test_what_is_no_study_is_named(source, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    with pytest.raises(UsageError) as refused:
        find_study(source)
    assert all(word in str(refused.value) for word in words)
    assert "secret" not in str(refused.value)


def test_a_database_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(StorageError, match=r"absent\.db does not exist"):
        find_study(f"sqlite:///{tmp_path / 'absent.db'}")
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        *((one, "mine") for one in ("nine", "studies/nine/study.db", "studies", "sqlite://", "")),
        ("mime", "Did you mean 'mine'"),
    ],
)
def test_a_missing_study_is_refused_with_those_that_are_there(folder, source, said):
    before = sorted(folder.rglob("*"))
    with pytest.raises(UsageError, match="is not a study") as caught:
        find_study(source)
    assert said in str(caught.value)
    assert sorted(folder.rglob("*")) == before, "and none is made"


def test_the_dashboard_needs_more_than_an_answer(folder):
    answer = folder / "studies" / "mine" / "best.yaml"
    answer.touch()
    with pytest.raises(UsageError, match="has no trials"):
        serve(find_study(str(answer)), 0)


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(folder):
    photo = folder / "photo.jpg"
    photo.write_bytes(b"holiday" * 100)
    with pytest.raises(UsageError, match="not an SQLite database"):
        find_study("photo.jpg")
    assert photo.read_bytes() == b"holiday" * 100


def test_a_database_without_a_study_is_refused(folder):
    with pytest.raises(StorageError, match="holds no study"):
        serve(find_study("mine"), 0)


def test_a_database_of_something_else_is_refused(folder):
    import sqlite3

    other = folder / "music.db"
    with sqlite3.connect(other) as connection:
        connection.execute("create table songs (name text)")
    connection.close()
    with pytest.raises(StorageError, match="cannot be used"):
        serve(find_study("music.db"), 0)


def test_a_driver_that_is_not_installed_is_said_without_the_password():
    with pytest.raises(StorageError) as caught:
        serve(find_study("postgresql+nosuch://me:secret@host/name"), 0)
    assert "secret" not in str(caught.value)


LOCAL = "127.0.0.1:8080"


def application(environ, start):
    """Says yes to everything and everyone."""
    start("200 OK", [("Content-Type", "text/html"), ("Access-Control-Allow-Origin", "*")])
    return [b"yes"]


def asked(method="GET", host=LOCAL, path="/api"):
    """Status, headers and body of one request."""
    environ = {"REQUEST_METHOD": method, "HTTP_HOST": host, "PATH_INFO": path}
    setup_testing_defaults(environ)
    told = []
    body = guarded(application, "/first")(environ, lambda *given: told.append(given))
    status, headers, *_ = told[0]
    return int(status.split()[0]), dict(headers), b"".join(body)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", LOCAL, "localhost", "LOCALHOST:9", "127.0.0.2:1", "[::1]", "[::1]:8080"]
)
def test_this_machine_is_answered_whatever_the_port(host):
    assert asked(host=host)[::2] == (200, b"yes")


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8080", "127.0.0.1.evil.example"),
        *("localhost.evil.example:8080", "10.0.0.5:8080", "0.0.0.0", "[fe80::1]:8080", "", ":8080"),
        *("127.0.0.1:8080:evil", "2130706433"),
    ],
)
def test_a_name_that_somebody_else_may_have_pointed_here_is_refused(host):
    status, _, body = asked(host=host)
    assert status == 403
    assert json.loads(body)["reason"]


def test_the_bare_address_leads_to_the_first_page():
    status, headers, _ = asked("HEAD", path="/")
    assert (status, headers["Location"]) == (302, "/first")
