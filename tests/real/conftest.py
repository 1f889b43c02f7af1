"""One warm host for the children of a module, and scripts put to it."""

import pytest

from asked_scripts import Ask
from autotune.process.runner import SubprocessRunner


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The folder by which the children of the runner are known."""
    return tmp_path_factory.mktemp("runner")


@pytest.fixture(scope="module")
def runner(place):
    """A runner that forks all children from one host."""
    with SubprocessRunner(place / "inductor") as runner:
        yield runner


@pytest.fixture
def ask(runner, tmp_path):
    """Put tasks to scripts, each in a child of its own."""
    return Ask(runner, tmp_path / "trial")
