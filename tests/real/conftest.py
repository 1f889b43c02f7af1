"""One warm host for the children of a module, and scripts put to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from asked_scripts import Ask
from autotune.process.runner import SubprocessRunner


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder by which the children of the runner are known."""
    return tmp_path_factory.mktemp("runner")


@pytest.fixture(scope="module")
def runner(place: Path) -> Iterator[SubprocessRunner]:
    """A runner that forks all children from one host."""
    with SubprocessRunner(place / "inductor") as runner:
        yield runner


@pytest.fixture
def ask(runner: SubprocessRunner, tmp_path: Path) -> Ask:
    """Put tasks to scripts, each in a child of its own."""
    return Ask(runner, tmp_path / "trial")
