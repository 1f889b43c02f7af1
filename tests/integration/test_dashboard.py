"""`autotune dashboard` as a person starts it, and the plain optuna-dashboard on the same file."""

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from autotune.cli import main
from autotune.searching.run.events import Answered
from autotune.storage.mutex import study_lock
from children import wait_until
from covering import covers
from dashboards import running_dashboard
from finished_study import LOG, NAME, finished_study, runner
from scripted_runner import events_of, options_in

STUDY = "/api/studies/1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a finished study."""
    folder = tmp_path_factory.mktemp("dashboard")
    finished_study(folder)
    return folder


@pytest.fixture(scope="module")
def dashboard(folder):
    with running_dashboard(folder, NAME, "--port", "0") as running:
        yield running


@pytest.fixture(scope="module")
def detail(dashboard):
    """Files that the dashboard's pages are made of."""
    return dashboard.ask("GET", STUDY).data


@pytest.fixture
def refused(monkeypatch, capsys):
    """`autotune dashboard` in this process, which ends at once: exit code and what it said."""

    def ended(folder, *arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setattr("autotune.commands.dashboard.unwind_on_sigterm", lambda: None)
        monkeypatch.setattr(sys, "argv", ["autotune", "dashboard", "--no-browser", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capsys.readouterr().err

    return ended


def test_its_pages_get_long_attributes_cut_and_the_study_keeps_them(dashboard, folder, detail):
    trial = detail["trials"][2]
    shown = {one["key"]: one["value"] for one in trial["user_attrs"]}
    kept = optuna.load_study(study_name=NAME, storage=f"sqlite:///{folder}/studies/{NAME}/study.db")
    attributes = kept.trials[2].user_attrs
    assert shown.keys() == attributes.keys()
    whole = json.dumps(attributes["measurement"])
    assert shown["measurement"] == whole[:60] + "…" != whole
    assert float(shown["samples_per_second"]) == attributes["samples_per_second"]
    told = [*detail["user_attrs"], *(one for t in detail["trials"] for one in t["user_attrs"])]
    assert max(len(one["value"]) for one in told) == 61
    answer = dashboard.ask("GET", STUDY)
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert len(detail["note"]["body"]) > 500, "nothing else is cut"


def test_it_says_where_it_is_and_that_nothing_can_be_changed(dashboard):
    assert f"{NAME} in sqlite:///" in dashboard.said
    assert "read-only" in dashboard.said
    assert dashboard.url == f"http://127.0.0.1:{dashboard.port}/"


def test_it_shows_the_study_with_a_readable_objective(dashboard, detail):
    (study,) = dashboard.ask("GET", "/api/studies").data["study_summaries"]
    assert study["study_name"] == NAME
    assert detail["objective_names"] == ["samples/s"]
    assert len(detail["trials"]) == 5


def test_an_infeasible_trial_can_be_told_by_its_constraints(detail):
    infeasible = [t["number"] for t in detail["trials"] if max(t["constraints"]) > 0]
    reasons = [
        attribute["value"]
        for trial in detail["trials"]
        for attribute in trial["user_attrs"]
        if attribute["key"] == "reason" and trial["number"] in infeasible
    ]
    assert len(reasons) == 1
    assert "out of host memory" in reasons[0]


def test_note_report_and_files_are_there(dashboard, detail):
    assert "1.52x faster" in detail["note"]["body"]
    files = {file["filename"]: file["artifact_id"] for file in detail["artifacts"]}
    assert sorted(files) == ["best.yaml", "report.html"]
    page = dashboard.ask("GET", f"/artifacts/1/{files['report.html']}")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.body.decode()
    (trial,) = [trial for trial in detail["trials"] if trial["artifacts"]]
    (log,) = trial["artifacts"]
    answer = dashboard.ask("GET", f"/artifacts/1/{trial['trial_id']}/{log['artifact_id']}")
    assert answer.body.decode() == LOG
    assert answer.headers["content-type"].startswith("text/plain")
    assert "access-control-allow-origin" not in answer.headers


def test_a_shared_study_comes_with_its_files_or_with_where_they_are(shared_storage, tmp_path):
    place = tmp_path / "studies" / NAME
    place.mkdir(parents=True)
    events_of(options_in(place, storage=shared_storage, trials=2), runner())
    with running_dashboard(tmp_path, shared_storage, "--port", "0") as dashboard:
        (study,) = dashboard.ask("GET", "/api/studies").data["study_summaries"]
        detail = dashboard.ask("GET", f"/api/studies/{study['study_id']}").data
        assert "samples/s" in detail["note"]["body"]
        (best,) = (one for one in detail["artifacts"] if one["filename"] == "best.yaml")
        path = f"/artifacts/{study['study_id']}/{best['artifact_id']}"
        assert dashboard.ask("GET", path).body == (place / "best.yaml").read_bytes()
        # As if another host had attached it.
        (tmp_path / "studies" / ".artifacts" / best["artifact_id"]).unlink()
        answer = dashboard.ask("GET", path)
        assert (answer.status, b"lies on the host" in answer.body) == (200, True)


@covers("X6")
@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080"])
def test_another_name_is_refused(dashboard, host):
    assert dashboard.ask("GET", "/api/studies", Host=host).status == 403
    assert dashboard.ask("DELETE", STUDY, Host=host).status == 403


@covers("X6")
@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", STUDY), ("POST", "/api/studies"), ("PUT", f"{STUDY}/note"), ("PATCH", STUDY)],
)
def test_nothing_can_be_changed(dashboard, method, path):
    answer = dashboard.ask(method, path)
    assert answer.status == 405
    assert "--allow-edit" in answer.data["reason"]
    assert dashboard.ask("GET", STUDY).status == 200


@covers("X7")
def test_a_taken_port_leads_to_the_next_one_and_ctrl_c_ends_it(dashboard, folder, tmp_path):
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    program.chmod(0o755)
    port = str(dashboard.port)
    with running_dashboard(folder, NAME, "--port", port, browser=f"{program} %s") as other:
        assert wait_until((tmp_path / "opened").exists, seconds=20)
        assert wait_until(lambda: (tmp_path / "opened").read_text().strip() == other.url, seconds=5)
        assert other.port > dashboard.port
        assert f"port {dashboard.port} is taken" in other.said
        assert other.ask("GET", "/api/studies").status == 200
        code, said = other.end(signal.SIGINT)
    assert (code, said.strip()) == (0, "The dashboard is closed; the study stays as it is.")


def test_editing_is_possible_while_no_search_runs_but_not_from_other_sites(
    folder, refused, tmp_path
):
    place = shutil.copytree(folder / "studies" / NAME, tmp_path / NAME)
    with running_dashboard(tmp_path, NAME, "--port", "0", "--allow-edit") as dashboard:
        theirs = dashboard.ask("DELETE", STUDY, Origin="http://evil.example")
        assert theirs.status == 403
        code, said = refused(tmp_path, NAME, "--allow-edit")
        assert (code, "in use by process" in said) == (5, True)
        assert dashboard.ask("DELETE", STUDY, **{"Content-Length": "0"}).status == 204
        assert dashboard.end(signal.SIGTERM)[0] == 143
    assert optuna.get_all_study_names(f"sqlite:///{place}/study.db") == []


def test_pages_that_are_read_all_the_time_do_not_disturb_a_search(tmp_path):
    place = tmp_path / "studies" / NAME
    place.mkdir(parents=True)
    events_of(options_in(place, trials=2), runner())
    over, statuses = threading.Event(), []

    def read_on(dashboard):
        while not over.is_set():
            statuses.append(dashboard.ask("GET", STUDY).status)

    with study_lock(place), running_dashboard(tmp_path, NAME, "--port", "0") as dashboard:
        assert "were not updated" not in dashboard.said
        readers = [threading.Thread(target=read_on, args=(dashboard,)) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            events = events_of(options_in(place), runner())
        finally:
            over.set()
            for reader in readers:
                reader.join()
    assert isinstance(events[-1], Answered)
    assert len(statuses) > len(readers)
    assert set(statuses) == {200}
    with closing(sqlite3.connect(place / "study.db")) as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)


@covers("X6")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("nowhere",), 2, "is no study"),
        ((NAME, "--host", "0.0.0.0"), 2, "--expose"),
        (("photo.jpg",), 5, "no SQLite database"),
    ],
)
def test_a_study_that_cannot_be_shown_is_refused_with_what_to_do(
    folder, refused, arguments, code, says
):
    (folder / "photo.jpg").write_bytes(b"holiday" * 100)
    ended, said = refused(folder, *arguments)
    assert (ended, "Traceback" in said) == (code, False)
    assert says in said


def test_the_plain_optuna_dashboard_lists_the_study_too(folder):
    program = Path(sys.executable).with_name("optuna-dashboard")
    database = f"sqlite:///{folder}/studies/{NAME}/study.db"
    port = _free_port()
    plain = subprocess.Popen([program, database, "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        data = json.loads(_read(f"http://localhost:{port}/api/studies"))
    finally:
        plain.kill()
        plain.wait()
    assert [study["study_name"] for study in data["study_summaries"]] == [NAME]


def _free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _read(url, seconds=30.0):
    """The body of a page, as soon as there is one."""
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as page:
                return page.read()
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
