"""A real browser for tests, and what every page has to keep to.

Chromium is the system's own. Tests that need it are skipped where it is missing (`needs`).
"""

import pytest

from browsers import Watched, chromium, launched, watch
from dashboards import running_dashboard
from finished_study import NAME, finished_study
from needs import installed, missing


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all tests, without a window."""
    installed("playwright")
    program = chromium()
    if program is None:
        missing("Chromium", "apt-get install chromium")
    with launched(program) as browser:
        yield browser


@pytest.fixture(scope="session")
def context(browser):
    """Fixtures of pages: the dashboard's scripts are read once."""
    with browser.new_context(viewport={"width": 1200, "height": 800}) as context:
        yield context


@pytest.fixture
def page(context):
    """A page that may report no error and ask no other machine; checked when the test is over."""
    with context.new_page() as page:
        watched = watch(page)
        yield page
        assert watched == Watched(), "errors on the console, or requests to other machines"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder in which `studies/scripted` is a finished study."""
    folder = tmp_path_factory.mktemp("browser")
    finished_study(folder)
    return folder


@pytest.fixture(scope="session")
def dashboard(folder, browser):
    """A dashboard on that study; not started where there is no browser."""
    with running_dashboard(folder, NAME, "--port", "0") as running:
        yield running
