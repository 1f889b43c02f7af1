"""Notes and plots tell on the dashboard what came out of a study."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna_dashboard
import pytest
from optuna_dashboard._custom_plot_data import get_plotly_graph_objects
from optuna_dashboard._note import get_note_from_system_attrs

from dashboards import attached as attached_to
from dashboards import attributes, study_of
from factories import GIB
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


def test_a_note_that_a_person_wrote_is_kept(folder: Path) -> None:
    attached_to(folder)
    note = optuna_dashboard.get_note(study_of(folder))
    *lines, last = note.splitlines()
    assert "Delete this line to keep your changes" in last
    own = "\n".join([*lines, "Mine."])
    optuna_dashboard.save_note(study_of(folder), own)
    attached_to(folder)
    assert optuna_dashboard.get_note(study_of(folder)) == own


def test_a_trial_says_what_became_of_it_which_the_list_of_trials_does_not(folder: Path) -> None:
    attached_to(folder)
    notes = {
        trial.config["batch_size"]: get_note_from_system_attrs(attributes(folder), trial.id)["body"]
        for trial in told(folder)
    }
    assert notes[8].startswith("**The baseline**")
    assert notes[64].startswith(
        "**Feasible.**\n\n- batch_size=64\n\n164.0 samples/s in the search, "
    )
    assert "1.52x the baseline" in notes[64]
    assert notes[128].startswith("**Infeasible**: `out of host memory: no room for [bold]128`")


@dataclass(frozen=True)
class Told:
    id: int
    config: dict[str, object]


def told(folder: Path) -> list[Told]:
    return [Told(t._trial_id, t.user_attrs["config"]) for t in study_of(folder).trials]


def test_an_unfinished_study_has_a_note_that_says_so(folder: Path) -> None:
    study_of(folder).set_user_attr("answer", None)
    attached_to(folder)
    assert "## No answer yet" in optuna_dashboard.get_note(study_of(folder))


def test_the_plots_tell_feasible_and_infeasible_apart_and_mark_the_limits(folder: Path) -> None:
    attached_to(folder)
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
    assert marks == {
        "baseline in the search": pytest.approx(108),
        "computing alone": pytest.approx(200),
    }
    shapes = [shape for plot in plots.values() for shape in plot["layout"]["shapes"]]
    below = [shape["label"]["text"] for shape in shapes if shape["label"].get("yanchor") == "top"]
    assert below == ["computing alone"], "what stands above the topmost line is cut off"


def memory_plot(folder: Path, limit_bytes: int) -> dict[str, Any]:
    """Return the layout of the plot of memory under this limit."""
    study = study_of(folder)
    identity = {**study.user_attrs["identity"], "memory_limit_bytes": limit_bytes}
    study.set_user_attr("identity", identity)
    attached_to(folder)
    plots = get_plotly_graph_objects(attributes(folder))
    layout: dict[str, Any] = json.loads(plots["memory-and-throughput"])["layout"]
    return layout


def test_a_limit_that_is_far_away_is_named_and_does_not_press_the_trials_together(
    folder: Path,
) -> None:
    near, far = (memory_plot(folder, limit) for limit in (int(1.25 * GIB), 100 * GIB))
    (mark,) = near["shapes"]
    assert mark["x0"] == pytest.approx(1.25)
    assert far.get("shapes", []) == []
    assert far["xaxis"]["title"]["text"] == "GiB at the peak, of 100 GiB allowed"
