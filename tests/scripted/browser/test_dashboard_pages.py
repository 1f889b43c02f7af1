"""Optuna Dashboard on a finished study, as a person sees it."""

import optuna
import pytest

from autotune.values.outcome import OutOfMemory
from dashboards import running_dashboard
from finished_study import NAME, larger_is_faster
from scripted_runner import ScriptedRunner, batch_of, events_of, options_in

# Whether Plotly was given an infeasible trial and has drawn; the traces that it was given.
TOLD = "id => document.getElementById(id)?.data?.some(one => one.name.includes('Infeasible'))"
DRAWN = "id => !!document.getElementById(id)?.querySelector('.main-svg .point, .main-svg path')"
TRACES = "id => document.getElementById(id).data.map(({name, x, y}) => ({name, x, y}))"


def plotted(page, name):
    """The traces of a plot, as soon as it is drawn."""
    page.locator(f"[id='{name}']").scroll_into_view_if_needed()
    page.wait_for_function(DRAWN, arg=name)
    return page.evaluate(TRACES, name)


def test_the_list_of_studies_leads_to_its_trials(page, dashboard):
    page.goto(f"{dashboard.url}dashboard")
    page.get_by_text(NAME).first.click()
    page.get_by_text("batch_size").first.wait_for()
    page.goto(f"{dashboard.url}dashboard/studies/1/trials")
    for number in range(5):
        page.get_by_text(f"Trial {number}", exact=True).first.wait_for()


def test_an_infeasible_trial_stands_apart_in_the_plots_that_are_there(page, dashboard):
    page.goto(f"{dashboard.url}dashboard/studies/1")
    page.wait_for_function(TOLD, arg="plot-history")
    history = {trace["name"]: trace["x"] for trace in plotted(page, "plot-history")}
    (infeasible,) = [x for name, x in history.items() if "Infeasible" in name]
    assert len(infeasible) == 1


@pytest.fixture(scope="module")
def refuted(tmp_path_factory, browser):
    """A dashboard on a study whose leader is refuted by its seeds, and a trial ran out of memory.

    With it the numbers of the trials by batch size and workers.
    """
    folder = tmp_path_factory.mktemp("refuted")
    losses = (0.02, 0.03, 0.025)

    def measure(config, phase):
        lacks = OutOfMemory("shared", "no room for batches")
        return lacks if config["num_workers"] else larger_is_faster(config, phase)

    runner = ScriptedRunner(
        measure, lambda config, seed: 0.9 - (losses[seed % 3] if batch_of(config) == 64 else 0.0)
    )
    events_of(options_in(folder, "batch_size: [8, 32, 64]\nnum_workers: [0, 1]\n"), runner)
    study = optuna.load_study(study_name=NAME, storage=f"sqlite:///{folder / 'study.db'}")
    numbers = {tuple(trial.params.values()): trial.number for trial in study.trials}
    with running_dashboard(folder, str(folder), "--port", "0") as running:
        yield running, numbers


def test_a_leader_that_its_seeds_refute_stands_as_infeasible_beside_one_without_memory(
    page, refuted
):
    dashboard, numbers = refuted
    page.goto(f"{dashboard.url}dashboard/studies/1")
    page.wait_for_function(TOLD, arg="plot-history")
    history = {trace["name"]: trace["x"] for trace in plotted(page, "plot-history")}
    (infeasible,) = [x for name, x in history.items() if "Infeasible" in name]
    assert sorted(infeasible) == sorted([numbers[8, 1], numbers[64, 0]])
    page.get_by_text(f"Best Trial (number={numbers[32, 0]})").wait_for()
    page.goto(f"{dashboard.url}dashboard/studies/1/trials?numbers={numbers[64, 0]}")
    page.get_by_text("evaluate is 0.").first.wait_for()


def test_a_trial_says_why_it_is_infeasible(page, dashboard):
    trials = page.request.get(f"{dashboard.url}api/studies/1").json()["trials"]
    (failed,) = [trial for trial in trials if max(trial["constraints"]) > 0]
    page.goto(f"{dashboard.url}dashboard/studies/1/trials?numbers={failed['number']}")
    page.get_by_text("no room for").first.wait_for()


def test_a_trial_is_not_wider_than_its_window(page, dashboard):
    page.goto(f"{dashboard.url}dashboard/studies/1/trials?numbers=2")
    page.get_by_text("peak_memory_bytes").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200


def test_the_note_says_what_came_out(page, dashboard):
    page.goto(dashboard.url)  # the first page
    page.get_by_role("heading", name="1.52x faster than your settings").wait_for()
    page.get_by_text("best.yaml").first.wait_for()
