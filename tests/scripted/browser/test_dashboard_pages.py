"""Optuna Dashboard on a finished study, as a person sees it."""

from finished_study import NAME

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
