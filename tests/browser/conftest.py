"""A real browser for tests, and what every page has to keep to.

Chromium is the system's own. Where it is missing, the tests are skipped, except where
AUTOTUNE_BROWSER_TESTS=required says that it has to be there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from browsers import PROGRAMS, Watched, chromium, launched, watch
from dashboards import RunningDashboard, running_dashboard
from finished_study import NAME, finished_study

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests, without a window."""
    if find_spec("playwright") is None:
        _missing("playwright is not installed: pip install 'autotune[browser]'")
    program = chromium()
    if program is None:
        _missing(f"none of {', '.join(PROGRAMS)} is installed: apt-get install chromium")
    with launched(program) as browser:
        yield browser


def _missing(what: str) -> NoReturn:
    if os.environ.get("AUTOTUNE_BROWSER_TESTS") == "required":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """What pages share: the dashboard's scripts are read once."""
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
