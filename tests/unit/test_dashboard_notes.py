"""The note tells on the dashboard what came out of a study."""

from __future__ import annotations

import shutil
from pathlib import Path

import optuna_dashboard
import pytest

from dashboards import attached as attached_to
from dashboards import attributes, study_of
from finished_study import NAME, finished_study


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study; copied for each test."""
    return finished_study(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / NAME)


def test_the_note_says_what_came_out_and_what_the_numbers_mean(folder: Path) -> None:
    attached_to(folder)
    note = optuna_dashboard.get_note(study_of(folder))
    assert "## 1.52x faster than your settings" in note
    assert "| batch_size | 8 | 64 |" in note
    assert "| samples/s in the confirmation | 108 | 164 |" in note
    assert "5 trials, 4 of them feasible" in note
    assert "- 1 x `out of host memory: no room for [bold]128`" in note
    assert "memory, accuracy, ran" in note
    (report,) = (name for name, value in attributes(folder).items() if "report.html" in str(value))
    assert f"[The report](/artifacts/1/{report.removeprefix('artifacts:')})" in note


def test_a_note_that_a_person_wrote_is_kept(folder: Path) -> None:
    attached_to(folder)
    note = optuna_dashboard.get_note(study_of(folder))
    *lines, last = note.splitlines()
    assert "Delete this line to keep your changes" in last
    own = "\n".join([*lines, "Mine."])
    optuna_dashboard.save_note(study_of(folder), own)
    attached_to(folder)
    assert optuna_dashboard.get_note(study_of(folder)) == own


def test_an_unfinished_study_has_a_note_that_says_so(folder: Path) -> None:
    study_of(folder).set_user_attr("answer", None)
    attached_to(folder)
    assert "## No answer yet" in optuna_dashboard.get_note(study_of(folder))
