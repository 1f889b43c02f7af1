"""What a study carries for the dashboard besides its trials."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import optuna
import optuna_dashboard
import pytest
from optuna_dashboard._custom_plot_data import get_plotly_graph_objects
from optuna_dashboard._note import get_note_from_system_attrs

from autotune.dashboard.attach import ARTIFACTS, attach
from autotune.dashboard.note import OWN_LINE
from autotune.dashboard.place import find_study
from autotune.dashboard.serve import _bring_up_to_date
from autotune.tuning.storing.lock import study_lock
from finished_study import LOG, NAME, finished_study


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study; copied for each test."""
    return finished_study(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / NAME)


def storage_of(folder: Path) -> optuna.storages.RDBStorage:
    return optuna.storages.RDBStorage(f"sqlite:///{folder / 'study.db'}")


def study_of(folder: Path) -> optuna.Study:
    return optuna.load_study(study_name=NAME, storage=storage_of(folder))


def attributes(folder: Path) -> dict[str, object]:
    study = study_of(folder)
    return study._storage.get_study_system_attrs(study._study_id)


def attached(folder: Path) -> dict[str, Path]:
    """File name to the copy of everything that is attached."""
    found = {}
    for name, value in attributes(folder).items():
        if "artifacts:" in name:
            about = json.loads(str(value))
            found[about["filename"]] = folder / ARTIFACTS / about["artifact_id"]
    return found


def test_logs_that_say_something_and_the_answer_are_attached(folder: Path) -> None:
    attach(storage_of(folder), folder)
    files = attached(folder)
    assert sorted(files) == ["best.yaml", "stderr.log"]
    assert files["stderr.log"].read_text() == LOG
    assert files["best.yaml"].read_bytes() == (folder / "best.yaml").read_bytes()


def test_a_log_belongs_to_its_trial(folder: Path) -> None:
    attach(storage_of(folder), folder)
    (trial,) = [trial for trial in study_of(folder).trials if trial.number == 4]
    (name,) = [name for name in attributes(folder) if name.startswith("dashboard:artifacts:")]
    assert name.split(":")[2] == str(trial._trial_id)


def test_attaching_again_changes_nothing(folder: Path) -> None:
    attach(storage_of(folder), folder)
    before, copies = attributes(folder), sorted((folder / ARTIFACTS).iterdir())
    attach(storage_of(folder), folder)
    assert attributes(folder) == before
    assert sorted((folder / ARTIFACTS).iterdir()) == copies


def test_a_log_that_grew_replaces_what_it_was(folder: Path) -> None:
    attach(storage_of(folder), folder)
    log = folder / "trials" / "0004" / "stderr.log"
    log.write_text(LOG + "more\n")
    os.utime(log, (log.stat().st_mtime + 10,) * 2)
    attach(storage_of(folder), folder)
    assert attached(folder)["stderr.log"].read_text() == LOG + "more\n"


def test_of_a_long_log_the_end_is_attached(folder: Path) -> None:
    log = folder / "trials" / "0003" / "stdout.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"x" * (1 << 21) + b"what went wrong")
    attach(storage_of(folder), folder)
    copy = attached(folder)["stdout.log"].read_bytes()
    assert len(copy) == 1 << 20
    assert copy.endswith(b"what went wrong")


def test_trials_and_their_values_stay_as_they_were(folder: Path) -> None:
    before = study_of(folder).trials
    attach(storage_of(folder), folder)
    assert study_of(folder).trials == before


def test_the_note_says_what_came_out_and_what_the_numbers_mean(folder: Path) -> None:
    attach(storage_of(folder), folder)
    note = optuna_dashboard.get_note(study_of(folder))
    assert "## 1.52x faster than your settings" in note
    assert "| batch_size | 8 | 64 |" in note
    assert "5 trials, 4 of them feasible" in note
    assert "- 1 x `out of host memory: no room for [bold]128`" in note
    assert "memory, accuracy, ran" in note


def test_a_note_that_a_person_wrote_is_kept(folder: Path) -> None:
    attach(storage_of(folder), folder)
    own = optuna_dashboard.get_note(study_of(folder)).replace(OWN_LINE, "Mine.")
    optuna_dashboard.save_note(study_of(folder), own)
    attach(storage_of(folder), folder)
    assert optuna_dashboard.get_note(study_of(folder)) == own


def test_a_trial_says_what_became_of_it_which_the_list_of_trials_does_not(folder: Path) -> None:
    attach(storage_of(folder), folder)
    notes = {
        trial.config["batch_size"]: get_note_from_system_attrs(attributes(folder), trial.id)["body"]
        for trial in told(folder)
    }
    assert notes[8].startswith("**The baseline**")
    assert notes[64].startswith("**Feasible.**\n\n- batch_size=64\n\n164.0 samples/s, 1.52x")
    assert notes[128].startswith("**Infeasible**: `out of host memory: no room for [bold]128`")


@dataclass(frozen=True)
class Told:
    id: int
    config: dict[str, object]


def told(folder: Path) -> list[Told]:
    return [Told(t._trial_id, t.user_attrs["config"]) for t in study_of(folder).trials]


def test_an_unfinished_study_has_a_note_that_says_so(folder: Path) -> None:
    study_of(folder).set_user_attr("answer", None)
    attach(storage_of(folder), folder)
    assert "## No answer yet" in optuna_dashboard.get_note(study_of(folder))


def test_the_plots_tell_feasible_and_infeasible_apart_and_mark_the_limits(folder: Path) -> None:
    study = study_of(folder)
    limit = study.user_attrs["identity"]["memory_limit_bytes"] / (1 << 30)
    attach(storage_of(folder), folder)
    plots = {
        name: json.loads(text)
        for name, text in get_plotly_graph_objects(attributes(folder)).items()
    }
    assert set(plots) == {"throughput", "memory-and-throughput"}
    feasible, infeasible = plots["throughput"]["data"]
    assert sorted(feasible["y"]) == pytest.approx([108, 116, 132, 164])
    assert infeasible["y"] == [], "what did not run has no throughput"
    marks = {
        shape["label"]["text"]: shape["y0"] for shape in plots["throughput"]["layout"]["shapes"]
    }
    assert marks == {"baseline": pytest.approx(108), "computing alone": pytest.approx(200)}
    (mark,) = plots["memory-and-throughput"]["layout"]["shapes"]
    assert mark["x0"] == pytest.approx(limit)


def test_a_study_of_somebody_elses_is_left_alone(tmp_path: Path, url: str) -> None:
    study = optuna.create_study(storage=url, study_name="theirs")
    study.add_trial(optuna.trial.create_trial(value=1.0))
    attach(optuna.storages.RDBStorage(url), tmp_path)
    assert study._storage.get_study_system_attrs(study._study_id) == {}
    assert not (tmp_path / ARTIFACTS).exists()


def test_while_a_search_writes_the_study_nothing_is_attached(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = attributes(folder)
    place = find_study(str(folder))
    with study_lock(folder):
        _bring_up_to_date(place, storage_of(folder), held=False)
    assert "stay as they are" in capsys.readouterr().err
    assert attributes(folder) == before
    _bring_up_to_date(place, storage_of(folder), held=False)
    assert attributes(folder) != before
