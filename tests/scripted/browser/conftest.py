"""A real browser for tests, and what every page has to keep to.

Chromium is the system's own. Tests that need it are skipped where it is missing (`needs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browsers import Watched, chromium, launched, watch
from dashboards import RunningDashboard, running_dashboard
from finished_study import NAME, finished_study
from needs import installed, missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests, without a window."""
    installed("playwright")
    program = chromium()
    if program is None:
        missing("Chromium", "apt-get install chromium")
    with launched(program) as browser:
        yield browser


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Fixtures of pages: the dashboard's scripts are read once."""
    with browser.new_context(viewport={"width": 1200, "height": 800}) as context:
        yield context


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that may report no error and ask no other machine; checked when the test is over."""
    with context.new_page() as page:
        watched = watch(page)
        yield page
        assert watched == Watched(), "errors on the console, or requests to other machines"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `studies/scripted` is a finished study."""
    folder = tmp_path_factory.mktemp("browser")
    finished_study(folder)
    return folder


@pytest.fixture(scope="session")
def dashboard(folder: Path, browser: Browser) -> Iterator[RunningDashboard]:
    """A dashboard on that study; not started where there is no browser."""
    with running_dashboard(folder, NAME, "--port", "0") as running:
        yield running
