"""The HTML report of a study, opened from disk: one file that needs nobody."""

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.report.data import read_report
from autotune.report.html import page as page_of
from autotune.study.archive import find_study
from autotune.values.text import clean
from covering import covers
from factories import best_config
from finished_study import NAME
from reporting import OWN, report_of, searched, trial

# Of each drawing: its name, its box, those of what stands in it, and the kinds of its marks.
DRAWINGS = """() => [...document.querySelectorAll("main .drawing svg")].map(svg => {
  const box = node => {
    const {left, top, right, bottom} = node.getBoundingClientRect();
    return {left, top, right, bottom, text: node.tagName === "text" ? node.textContent : ""};
  };
  const shown = [...svg.querySelectorAll(".mark")];
  return {
    name: svg.getAttribute("aria-label"),
    box: box(svg),
    shown: shown.filter(one => !one.closest(".swatch")).map(box),
    kinds: [...svg.querySelectorAll(".mark")].map(one => one.classList[1]),
    texts: [...svg.querySelectorAll("text")].filter(one => one.textContent).map(box),
  };
})"""
COLOUR = "node => getComputedStyle(node)[node.classList.contains('failed') ? 'stroke' : 'fill']"


@pytest.fixture(scope="session")
def report(folder):
    """The report of a finished study."""
    html = folder / "report.html"
    html.write_text(clean(page_of(read_report(find_study(str(folder / "studies" / NAME))))))
    return html


@pytest.fixture(scope="session")
def every_kind(tmp_path_factory):
    """The report of a search in which trials failed in every way, with every drawing."""
    study = searched(tmp_path_factory.mktemp("every-kind"))
    html = study / "report.html"
    html.write_text(page_of(read_report(find_study(str(study)))))
    return html


@pytest.fixture(scope="session")
def long_names(tmp_path_factory):
    """A report with the longest names and numbers that there are, and no measured stages."""
    changes = {
        "batch_size": 4096,
        "float32_matmul_precision": "medium",
        "compile_mode": "max-autotune-no-cudagraphs",
        "persistent_workers": True,
        "num_workers": 16,
    }
    each = [{name: value} for name, value in changes.items()]
    trials = [trial(n, 3000.0 * n, **one) for n, one in enumerate((*each, *each, changes), start=1)]
    own = TrainingConfig.of(OWN)
    best = best_config(own.replace(**changes), own)
    html = tmp_path_factory.mktemp("long-names") / "report.html"
    html.write_text(page_of(report_of([trial(0), *trials], best)))
    return html


def drawings(page, html):
    """Boxes that the browser has drawn, by name."""
    page.goto(html.as_uri())
    return {drawing["name"]: drawing for drawing in page.evaluate(DRAWINGS)}


def crosses(one, other):
    """Return True if two boxes share more than their edges."""
    wide = min(one["right"], other["right"]) - max(one["left"], other["left"])
    high = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return bool(wide > 1 and high > 3)


def test_it_opens_from_disk_with_the_answer_and_every_trial(page, report):
    page.goto(report.as_uri())
    text = page.inner_text("body")
    assert NAME in text
    assert "1.52" in text
    assert "batch_size" in text
    assert "no room for [bold]128" in text, "the reason why a trial is infeasible"


def test_every_plot_is_there_with_its_marks_inside(page, every_kind):
    found = drawings(page, every_kind)
    assert len(found) == 2, sorted(found)
    for name, drawing in found.items():
        box = drawing["box"]
        assert box["right"] - box["left"] > 300, name
        assert box["bottom"] - box["top"] > 25, name
        assert drawing["shown"], name
        for mark in drawing["shown"]:
            assert mark["right"] > mark["left"], name
            assert mark["bottom"] > mark["top"], name
            assert mark["left"] >= box["left"] - 1, name
            assert mark["right"] <= box["right"] + 1, name
            assert mark["top"] >= box["top"] - 1, name
            assert mark["bottom"] <= box["bottom"] + 1, name


@pytest.mark.parametrize("study", ["report", "every_kind", "long_names"])
def test_no_words_of_a_plot_are_cut_off_or_written_over_others(page, study, request):
    for name, drawing in drawings(page, request.getfixturevalue(study)).items():
        box, texts = drawing["box"], drawing["texts"]
        for place, words in enumerate(texts):
            assert words["left"] >= box["left"] - 1, (name, words["text"])
            assert words["right"] <= box["right"] + 1, (name, words["text"])
            others = [other["text"] for other in texts[place + 1 :] if crosses(words, other)]
            assert not others, (name, words["text"])


def test_infeasible_trials_are_marked_by_shape_and_colour(page, every_kind):
    found = drawings(page, every_kind)
    (history,) = [drawing for name, drawing in found.items() if "in the order they ran" in name]
    assert len(history["kinds"]) == 15
    assert {"baseline", "feasible", "accuracy", "failed"} <= set(history["kinds"])
    colours = {
        kind: page.locator(f"#history ~ .drawing .mark.{kind}").first.evaluate(COLOUR)
        for kind in ("feasible", "accuracy", "failed")
    }
    assert colours["accuracy"] == colours["failed"] != colours["feasible"]
    legend = page.locator("#history ~ .legend").inner_text()
    assert "rejected: quality" in legend
    assert "rejected: did not run" in legend


@covers("X2")
def test_it_runs_no_script_and_asks_nobody(page, every_kind):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(every_kind.as_uri())
    page.wait_for_load_state("networkidle")
    assert [one for one in asked if not one.startswith(("file:", "data:"))] == []
    assert page.locator("script").count() == 0
