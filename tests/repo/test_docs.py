"""Pages that are written from the code say what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from autotune.cli import cli
from autotune.values.errors import (
    AutotuneError,
    MismatchError,
    NotSearchedEnoughError,
    StorageError,
    StudyMismatchError,
    TooManyLostError,
    UsageError,
    WorkloadError,
)

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a program of `docs/`, which is no package, import another one."""
    monkeypatch.syspath_prepend(ROOT / "docs")


def program(name: str) -> Any:
    """Load a program of `docs/`."""
    place = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_the_page_about_knobs_is_what_the_knobs_say_now() -> None:
    page = (ROOT / "docs" / "knobs.md").read_text(encoding="utf-8")
    assert page == program("knobs_page").knobs_page(), "docs/knobs.md is stale: run `make docs`"


def test_the_page_about_best_yaml_is_what_its_classes_say_now() -> None:
    page = (ROOT / "docs" / "best_yaml.md").read_text(encoding="utf-8")
    expected = program("best_yaml_page").best_yaml_page()
    assert page == expected, "docs/best_yaml.md is stale: run `make docs`"
    assert "| `trial` | whole number | Number of the trial in the study" in page


def test_the_page_about_commands_lists_the_exit_code_of_every_error() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    named = (UsageError, WorkloadError, StorageError, StudyMismatchError, MismatchError)
    for error in (AutotuneError, *named, TooManyLostError, NotSearchedEnoughError):
        assert f"\n| {error.exit_code} | " in page


def test_the_page_about_commands_names_every_command() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    listed = page.partition("\n## ")[0]
    assert not [name for name in cli.commands if not re.search(rf"`(autotune )?{name}\b", listed)]


def test_the_example_of_the_readme_is_the_recorded_search() -> None:
    page = program("opening")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    written = readme.partition(page.BEGIN)[2].partition(page.END)[0]
    assert written == page.opening(), "README.md is stale: run `python docs/opening.py`"
    assert len(written.splitlines()) > 20


def test_the_results_of_the_readme_are_the_recorded_ones() -> None:
    page = program("results")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    written = readme.partition(page.BEGIN)[2].partition(page.END)[0]
    assert written == page.results(), "README.md is stale: run `python docs/results.py`"
    assert len(written.splitlines()) > 40


def test_the_example_of_a_search_space_is_read_as_it_stands(tmp_path: Path) -> None:
    from autotune.configuration.search_space import read_space

    page = (ROOT / "docs" / "spaces.md").read_text(encoding="utf-8")
    example = page.split("```yaml\nbatch_size")[1].split("```")[0]
    file = tmp_path / "space.yaml"
    file.write_text("batch_size" + example)
    assert read_space(file).offers["num_workers"] == (0, 2, 4)
