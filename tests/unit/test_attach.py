"""Logs and the answer of a study are attached for the dashboard, each to its trial or study."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import optuna_dashboard
import pytest
from optuna_dashboard._custom_plot_data import get_plotly_graph_objects
from optuna_dashboard._note import get_note_from_system_attrs
from sqlalchemy import Engine, event, text

from autotune.storage.database import existing
from autotune.storage.mutex import study_lock
from dashboards import attached as attached_to
from dashboards import attributes, study_of
from finished_study import LOG, NAME, finished_study, runner
from scripted_runner import events_of, options_in


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study; copied for each test."""
    return finished_study(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / NAME)


def attached(folder: Path, study: optuna.Study | None = None) -> dict[str, Path]:
    """File name to the copy of everything that is attached."""
    found = {}
    for name, value in attributes(folder, study).items():
        if "artifacts:" in name and value != "null":
            about = json.loads(str(value))
            found[about["filename"]] = folder / "artifacts" / about["artifact_id"]
    return found


def written_log(folder: Path, text: str, config: object = None) -> Path:
    """A log in the folder of a process, with what it was asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stderr.log").write_text(text)
    if config is not None:
        (folder / "job.json").write_text(json.dumps({"config": config}))
    return folder / "stderr.log"


def test_logs_that_say_something_and_the_answer_are_attached(folder: Path) -> None:
    attached_to(folder)
    files = attached(folder)
    assert sorted(files) == ["best.yaml", "stderr.log"]
    assert files["stderr.log"].read_text() == LOG
    assert files["best.yaml"].read_bytes() == (folder / "best.yaml").read_bytes()


def test_a_log_belongs_to_its_trial(folder: Path) -> None:
    attached_to(folder)
    (trial,) = [trial for trial in study_of(folder).trials if trial.number == 4]
    (name,) = [name for name in attributes(folder) if name.startswith("dashboard:artifacts:")]
    assert name.split(":")[2] == str(trial._trial_id)


def test_attaching_again_changes_nothing(folder: Path) -> None:
    attached_to(folder)
    before, copies = attributes(folder), sorted((folder / "artifacts").iterdir())
    attached_to(folder)
    assert attributes(folder) == before
    assert sorted((folder / "artifacts").iterdir()) == copies


def test_a_log_that_grew_replaces_what_it_was(folder: Path) -> None:
    attached_to(folder)
    log = folder / "trials" / "0004" / "stderr.log"
    log.write_text(LOG + "more\n")
    os.utime(log, (log.stat().st_mtime + 10,) * 2)
    attached_to(folder)
    assert attached(folder)["stderr.log"].read_text() == LOG + "more\n"


def test_the_end_of_a_long_log_is_attached(folder: Path) -> None:
    log = folder / "trials" / "0003" / "stdout.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"x" * (1 << 21) + b"what went wrong")
    attached_to(folder)
    copy = attached(folder)["stdout.log"].read_bytes()
    assert len(copy) == 1 << 20
    assert copy.endswith(b"what went wrong")


def test_trials_and_their_values_stay_as_they_were(folder: Path) -> None:
    before = study_of(folder).trials
    attached_to(folder)
    assert study_of(folder).trials == before


def test_a_study_of_somebody_elses_is_left_alone(tmp_path: Path, url: str) -> None:
    study = optuna.create_study(storage=url, study_name="theirs")
    study.add_trial(optuna.trial.create_trial(value=1.0))
    attached_to(url)
    assert study._storage.get_study_system_attrs(study._study_id) == {}
    assert not (tmp_path / "artifacts").exists()


def test_neither_keeps_a_search_away_nor_waits_for_one(folder: Path) -> None:
    before = attributes(folder)
    with study_lock(folder):  # as a search has it; who asked for it here would be refused
        attached_to(folder)
    assert attributes(folder) != before


def test_each_search_of_one_database_has_its_own_answer_and_logs(tmp_path: Path) -> None:
    folder = finished_study(tmp_path)
    other = options_in(folder, "batch_size: [8, 32]\n", force=True, trials=2)
    events_of(other, runner())
    (forced,) = [s for s in optuna.get_all_study_names(other.study.storage) if s != NAME]
    mark = forced.removeprefix(f"{NAME}@")
    written_log(folder / mark / "trials" / "0001", "of the second search\n")
    written_log(folder / "trials" / "0001", "of the first search\n")
    attached_to(folder)
    for name, log, batch in ((NAME, "first", 64), (forced, "second", 32)):
        study = optuna.load_study(study_name=name, storage=other.study.storage)
        (one,) = [t for t in study.trials if t.number == 1]
        (about,) = [
            json.loads(str(value))
            for key, value in attributes(folder, study).items()
            if key.startswith(f"dashboard:artifacts:{one._trial_id}:")
        ]
        text = (folder / "artifacts" / about["artifact_id"]).read_text()
        assert text == f"of the {log} search\n"
        answer = attached(folder, study)["best.yaml"].read_text()
        assert f"\n  batch_size: {batch}\n" in answer


def test_the_answer_is_attached_wherever_it_was_written_to(tmp_path: Path) -> None:
    place = tmp_path / NAME
    place.mkdir()
    out = tmp_path / "elsewhere.yaml"
    events_of(options_in(place, out=out), runner())
    (place / "best.yaml").write_text("of an earlier search")
    attached_to(place)
    assert attached(place)["best.yaml"].read_bytes() == out.read_bytes()


def test_logs_of_further_devices_and_workers_are_their_trials_own(folder: Path) -> None:
    configs = {trial.number: trial.user_attrs["config"] for trial in study_of(folder).trials}
    workers = folder / "workers"
    written_log(workers / "cpu-1" / "trials" / "0002", "of a device\n", configs[2])
    written_log(workers / "node-7" / "trials" / "0003", "of a worker\n", configs[3])
    # As after a study was deleted and begun anew: the same number, another configuration.
    written_log(folder / "trials" / "0002", "of long ago\n", configs[1])
    attached_to(folder)
    prefix, texts = "dashboard:artifacts:", {}
    for name, value in attributes(folder).items():
        if name.startswith(prefix):
            copy = folder / "artifacts" / json.loads(str(value))["artifact_id"]
            texts[int(name.split(":")[2])] = copy.read_text()
    numbers = {trial._trial_id: trial.number for trial in study_of(folder).trials}
    found = {numbers[trial_id]: text for trial_id, text in texts.items()}
    assert found == {2: "of a device\n", 3: "of a worker\n", 4: LOG}


@contextmanager
def said_to_databases() -> Iterator[list[str]]:
    """The statements that are executed in the block."""
    statements: list[str] = []

    def hear(*words: Any) -> None:
        statements.append(words[2])

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", hear)


def test_a_trial_more_costs_no_more_questions_to_the_database(made: Path, tmp_path: Path) -> None:
    asked = {}
    for trials in (10, 60):
        folder = shutil.copytree(made, tmp_path / str(trials) / NAME)
        study = study_of(folder)
        like = study.trials[0]
        for number in range(trials):
            study.add_trial(like)
            written_log(folder / "trials" / f"{number:04d}", "said something\n")
        with said_to_databases() as statements:
            attached_to(folder)
        assert len(attached(folder)) >= 1
        asked[trials] = len([one for one in statements if not one.startswith("INSERT")])
    assert asked[60] <= asked[10] + 10, "read once, and written by the hundred"


@pytest.fixture
def shared(
    server_storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, optuna.storages.RDBStorage]:
    """The folder of a finished study whose database is a server's, and that."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "studies" / NAME
    place.mkdir(parents=True)
    events_of(options_in(place, storage=server_storage), runner())
    return place, existing(server_storage)


def test_a_study_on_a_server_has_what_lies_on_this_host_and_says_what_does_not(
    shared: tuple[Path, optuna.storages.RDBStorage], server_storage: str
) -> None:
    folder, storage = shared
    written_log(folder / "trials" / "0002", "said here\n")
    ran_on("node-7", 3, optuna.load_study(study_name=NAME, storage=storage), storage.engine)
    study = optuna.load_study(study_name=NAME, storage=storage)
    elsewhere = attached_to(server_storage)
    copies = Path("studies", ".artifacts")
    assert elsewhere == [f"{NAME}: the logs of trials 3 are on node-7, not here"]
    host = socket.gethostname()
    files = {name: path.name for name, path in attached(folder, study).items()}
    assert sorted(files) == sorted([f"{host}/stderr.log", "best.yaml"])
    assert (copies / files[f"{host}/stderr.log"]).read_text() == "said here\n"
    best = (copies / files["best.yaml"]).read_bytes()
    assert best == (folder / "best.yaml").read_bytes()
    assert "1.52x faster" in optuna_dashboard.get_note(study)
    plots = get_plotly_graph_objects(attributes(folder, study))
    assert set(plots) == {"throughput", "memory-and-throughput"}
    (theirs,) = [trial for trial in study.trials if trial.number == 3]
    note = get_note_from_system_attrs(attributes(folder, study), theirs._trial_id)["body"]
    assert "Its logs are on `node-7`" in note
    storage.engine.dispose()


def ran_on(host: str, number: int, study: optuna.Study, engine: Engine) -> None:
    """Let the study say that another host ran a trial."""
    storage = study._storage
    trial_id = storage.get_trial_id_from_study_id_trial_number(study._study_id, number)
    lease = dict(study.trials[number].user_attrs["lease"], host=f"{host}/pid:[1]")
    change = "UPDATE trial_user_attributes SET value_json = :value WHERE trial_id = :trial"
    with engine.begin() as connection:
        values = {"value": json.dumps(lease), "trial": trial_id}
        connection.execute(text(f"{change} AND key = 'lease'"), values)
