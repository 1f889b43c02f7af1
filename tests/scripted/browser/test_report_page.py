"""The HTML report of a study, opened from disk: one file that needs nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.report.data import read_report
from autotune.report.html import page as page_of
from autotune.study.archive import find_study
from autotune.values.text import clean
from covering import covers
from factories import GIB, best_config
from finished_study import NAME
from reporting import OWN, report_of, searched, trial

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

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
def report(folder: Path) -> Path:
    """The report of a finished study."""
    html = folder / "report.html"
    html.write_text(clean(page_of(read_report(find_study(str(folder / "studies" / NAME))))))
    return html


@pytest.fixture(scope="session")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a search in which trials failed in every way, with every drawing."""
    study = searched(tmp_path_factory.mktemp("every-kind"))
    html = study / "report.html"
    html.write_text(page_of(read_report(find_study(str(study)))))
    return html


@pytest.fixture(scope="session")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with the longest names and numbers that there are, and no measured stages."""
    changes: dict[str, Value] = {
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


def drawings(page: Page, html: Path) -> dict[str, dict[str, Any]]:
    """Boxes that the browser has drawn, by name."""
    page.goto(html.as_uri())
    return {drawing["name"]: drawing for drawing in page.evaluate(DRAWINGS)}


def crosses(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return True if two boxes share more than their edges."""
    wide = min(one["right"], other["right"]) - max(one["left"], other["left"])
    high = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return bool(wide > 1 and high > 3)


def test_it_opens_from_disk_with_the_answer_and_every_trial(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    text = page.inner_text("body")
    assert NAME in text
    assert "1.52" in text
    assert "batch_size" in text
    assert "no room for [bold]128" in text, "the reason why a trial is infeasible"


def test_every_plot_is_there_with_its_marks_inside(page: Page, every_kind: Path) -> None:
    found = drawings(page, every_kind)
    assert len(found) == 3, sorted(found)
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
def test_no_words_of_a_plot_are_cut_off_or_written_over_others(
    page: Page, study: str, request: pytest.FixtureRequest
) -> None:
    for name, drawing in drawings(page, request.getfixturevalue(study)).items():
        box, texts = drawing["box"], drawing["texts"]
        for place, words in enumerate(texts):
            assert words["left"] >= box["left"] - 1, (name, words["text"])
            assert words["right"] <= box["right"] + 1, (name, words["text"])
            others = [other["text"] for other in texts[place + 1 :] if crosses(words, other)]
            assert not others, (name, words["text"])


def test_infeasible_trials_are_marked_by_shape_and_colour(page: Page, every_kind: Path) -> None:
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
    assert "infeasible: accuracy" in legend
    assert "infeasible: did not run" in legend


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_page_in_light_and_dark(
    page: Page, every_kind: Path, scheme: Any
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(every_kind.as_uri())
    colours = (
        "node => [getComputedStyle(node).fill, getComputedStyle(document.body).backgroundColor]"
    )
    words, paper = page.locator("#history ~ .drawing text").first.evaluate(colours)
    assert abs(_light(words) - _light(paper)) > 100


def _light(colour: str) -> float:
    """Return the components of "rgb(r, g, b)", from 0 to 255."""
    parts = [float(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    return sum(parts) / 3


@pytest.mark.parametrize(
    ("study", "width", "media"),
    [
        ("every_kind", 360, "screen"),
        ("long_names", 400, "screen"),
        ("long_names", 650, "print"),
        ("long_names", 1200, "screen"),
    ],
)
def test_it_is_not_wider_than_its_window_or_paper(
    page: Page, study: str, width: int, media: Any, request: pytest.FixtureRequest
) -> None:
    page.emulate_media(media=media)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(request.getfixturevalue(study).as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_paper_short_names_stay_whole_and_the_sentences_are_there(
    page: Page, every_kind: Path
) -> None:
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 673, "height": 900})  # A4 less its margins
    page.goto(every_kind.as_uri())
    lines = """nodes => nodes.map(node => [
        node.textContent, new Set([...node.getClientRects()].map(box => box.y)).size
    ])"""
    names = dict(page.locator(".changes th code").evaluate_all(lines))
    assert names
    assert set(names.values()) == {1}, names
    assert page.get_by_text("was confirmed: its rounds alternated").is_visible()
    assert not page.locator("summary").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 673


def test_on_a_phone_settings_of_pareto_best_trials_are_readable(page: Page, tmp_path: Path) -> None:
    small, own, fast = trial(1, 90.0, batch_size=8), trial(0), trial(2, 200.0, batch_size=32)
    sized = [
        replace(one, details=replace(one.details, peak_memory_bytes=gib * GIB))
        for one, gib in ((own, 2), (small, 1), (fast, 3))
    ]
    html = tmp_path / "report.html"
    html.write_text(page_of(report_of(sized)))
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(html.as_uri())
    boxes = [
        one.bounding_box() for one in page.locator("#memory ~ .pareto tbody td:last-child").all()
    ]
    assert len(boxes) == 3
    assert all(box and box["width"] > 90 and box["x"] + box["width"] <= 360 for box in boxes)
    assert not page.locator(".pareto .rate").first.is_visible(), "the ratio tells it"
    assert page.locator("polyline.front").count() == 1


def test_on_a_phone_a_drawing_that_goes_on_says_so(page: Page, every_kind: Path) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(every_kind.as_uri())
    hints = page.evaluate(
        """[...document.querySelectorAll(".drawing, .wide")].map(box => [
            box.scrollWidth > box.clientWidth && box.clientWidth > 0,
            getComputedStyle(box, "::before").content.includes("scroll sideways"),
        ])"""
    )
    assert [says for goes_on, says in hints if goes_on]
    assert all(says for goes_on, says in hints if goes_on)


def test_on_a_phone_why_a_setting_changes_stands_below_it(page: Page, every_kind: Path) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(every_kind.as_uri())
    row = page.locator(".changes tbody tr").first
    name, why = row.locator("th").bounding_box(), row.locator(".why").bounding_box()
    assert name is not None
    assert why is not None
    assert why["y"] >= name["y"] + name["height"] - 1
    assert why["width"] > 300


@covers("X2")
def test_it_runs_no_script_and_asks_nobody(page: Page, every_kind: Path) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(every_kind.as_uri())
    page.wait_for_load_state("networkidle")
    assert [one for one in asked if not one.startswith(("file:", "data:"))] == []
    assert page.locator("script").count() == 0


@pytest.mark.parametrize("kept", [True, False], ids=["as it is", "without its policy"])
def test_markup_in_names_of_a_study_runs_no_code(
    browser: Browser, every_kind: Path, tmp_path: Path, kept: bool
) -> None:
    (tmp_path / "spy.css").write_text("h1 { color: rgb(1, 2, 3) }")
    page_text = every_kind.read_text()
    page_text = page_text if kept else page_text.replace("Content-Security-Policy", "nothing")
    smuggled = "<script>document.title = 'mine'</script><link rel=stylesheet href=spy.css>"
    changed = tmp_path / "changed.html"
    changed.write_text(page_text.replace("</main>", f"{smuggled}</main>"))
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(changed.as_uri())
        colour = page.locator("h1").evaluate("node => getComputedStyle(node).color")
        assert (page.title() == "mine", colour == "rgb(1, 2, 3)") == (not kept, not kept)


def test_the_search_stands_beside_the_headline_where_there_is_room(
    page: Page, every_kind: Path
) -> None:
    def corner(selector: str) -> tuple[float, float]:
        found = page.locator(selector).first.bounding_box()
        assert found is not None
        return found["x"], found["y"]

    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(every_kind.as_uri())
    (figure_x, figure_y), (search_x, search_y) = corner(".figure"), corner("#history")
    assert search_x > figure_x + 400
    assert abs(search_y - figure_y) < 60
    page.set_viewport_size({"width": 900, "height": 900})
    assert corner("#history")[1] > corner(".facts")[1]


def test_the_fastest_five_stand_below_the_search_and_no_other(page: Page, every_kind: Path) -> None:
    page.goto(every_kind.as_uri())
    rows = page.locator("#history ~ .pareto tbody tr").all()
    rates = [float(row.locator("td.rate").inner_text()) for row in rows]
    assert len(rows) == 5
    assert rates == sorted(rates, reverse=True)
