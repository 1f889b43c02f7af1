"""`autotune dashboard` as a person starts it, and the plain optuna-dashboard on the same file."""

import shutil
import signal
import sqlite3
import threading
from contextlib import closing

import optuna
import optuna_dashboard
import pytest

from autotune.searching.run.events import Answered
from autotune.study.storage import study_lock
from children import autotune
from command_line import told
from covering import covers
from dashboards import running_dashboard
from finished_study import NAME, finished_study, runner
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


def test_it_says_where_it_is_and_that_nothing_can_be_changed(dashboard):
    assert f"{NAME} in sqlite:///" in dashboard.said
    assert "read-only" in dashboard.said
    assert dashboard.url == f"http://127.0.0.1:{dashboard.port}/"


@pytest.mark.usefixtures("dashboard")
def test_a_note_that_a_person_wrote_is_kept(folder, tmp_path):
    shutil.copytree(folder / "studies", tmp_path / "studies")
    url = f"sqlite:///{tmp_path}/studies/{NAME}/study.db"
    study = optuna.load_study(study_name=NAME, storage=url)
    *lines, last = optuna_dashboard.get_note(study).splitlines()
    assert "Delete this line to keep your changes" in last
    optuna_dashboard.save_note(study, "\n".join([*lines, "Mine."]))
    with running_dashboard(tmp_path, NAME, "--port", "0") as dashboard:
        assert dashboard.ask("GET", STUDY).data["note"]["body"].endswith("Mine.")


def test_no_attribute_of_a_trial_is_wider_than_a_page(detail):
    shown = {one["key"]: one["value"] for one in detail["trials"][2]["user_attrs"]}
    assert shown.keys() >= {"config", "details", "reason", "samples_per_second"}
    assert max(len(value) for value in shown.values()) < 70


def test_a_study_on_a_server_is_shown_with_its_note(server_storage, tmp_path):
    events_of(options_in(tmp_path, storage=server_storage, trials=3), runner())
    with running_dashboard(tmp_path, server_storage, "--port", "0") as dashboard:
        (summary,) = dashboard.ask("GET", "/api/studies").data["study_summaries"]
        shown = dashboard.ask("GET", f"/api/studies/{summary['study_id']}").data
    assert "best.yaml" in shown["note"]["body"]


@covers("X6")
@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080"])
def test_another_name_is_refused(dashboard, host):
    assert dashboard.ask("GET", "/api/studies", Host=host).status == 403
    assert dashboard.ask("DELETE", STUDY, Host=host).status == 403


@covers("X6")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("DELETE", STUDY), ("POST", "/api/studies"), ("PUT", f"{STUDY}/note"), ("PATCH", STUDY)),
        *(("OPTIONS", STUDY), ("TRACE", STUDY), ("ODD", STUDY)),
    ],
)
def test_nothing_can_be_changed(dashboard, method, path):
    answer = dashboard.ask(method, path)
    assert answer.status == 403
    assert dashboard.ask("GET", STUDY).status == 200


@covers("X7")
def test_a_taken_port_is_refused_and_ctrl_c_ends_the_dashboard(dashboard, folder):
    refused = autotune(folder, "dashboard", NAME, "--port", dashboard.port)
    assert refused.returncode == 2
    assert f"--port {dashboard.port}: Address already in use. Choose another" in refused.stderr
    with running_dashboard(folder, NAME, "--port", "0") as other:
        assert other.ask("GET", "/api/studies").status == 200
        code, said = other.end(signal.SIGINT)
    assert (code, said.strip()) == (0, "The dashboard is closed; the study is unchanged.")


def test_pages_that_are_read_all_the_time_do_not_disturb_a_search(tmp_path):
    place = tmp_path / "studies" / NAME
    place.mkdir(parents=True)
    events_of(options_in(place, trials=2), runner())
    over, statuses = threading.Event(), []

    def read_on(dashboard):
        while not over.is_set():
            statuses.append(dashboard.ask("GET", STUDY).status)

    with study_lock(place), running_dashboard(tmp_path, NAME, "--port", "0") as dashboard:
        assert "was not updated" not in dashboard.said
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
def test_a_study_that_cannot_be_shown_is_refused(folder):
    done = told(folder, "dashboard", "nowhere")
    assert done.code == 2
    assert "is not a study" in done.err
