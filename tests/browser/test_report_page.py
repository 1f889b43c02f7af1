"""The HTML report of a study, opened from disk: one file that needs nobody."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autotune.cli import cli
from children import autotune
from finished_study import NAME

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.skipif("report" not in cli.commands, reason="there is no report yet")


@pytest.fixture(scope="session")
def report(folder: Path) -> Path:
    """The report of a finished study."""
    html = folder / "report.html"
    done = autotune(folder, "report", f"studies/{NAME}", "--html", html)
    assert done.returncode == 0, done.stderr
    return html


def test_it_opens_from_disk_with_the_answer_and_every_trial(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    text = page.inner_text("body")
    assert NAME in text
    assert "1.52" in text
    assert "batch_size" in text
    assert "no room for [bold]128" in text, "the reason why a trial is infeasible"


def test_it_is_not_wider_than_a_narrow_window(page: Page, report: Path) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_it_runs_no_script(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    assert page.locator("script[src]").count() == 0
