"""The two commands of the README install what they need once, and not again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def planned(folder: Path, target: str) -> str:
    """What `make` would run in a folder with nothing but the project's own files."""
    make = ["make", "--dry-run", "--no-print-directory", "-C", str(folder), target]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    run = subprocess.run(make, capture_output=True, text=True, check=True, env=environ)
    return run.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("target", ["demo", "test", "check"])
def test_a_fresh_checkout_makes_its_environment_and_installs(checkout: Path, target: str) -> None:
    plan = planned(checkout, target)
    assert "-m venv .venv" in plan
    assert "pip install" in plan


@pytest.mark.parametrize("target", ["demo", "test", "check"])
def test_a_second_run_installs_nothing(checkout: Path, target: str) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".installed").touch()
    assert "pip install" not in planned(checkout, target)


def test_changed_dependencies_are_installed(checkout: Path) -> None:
    installed = checkout / ".venv" / ".installed"
    installed.parent.mkdir()
    installed.touch()
    os.utime(installed, (0, 0))
    assert "pip install" in planned(checkout, "test")


def test_check_ends_with_the_tests() -> None:
    rule = (ROOT / "Makefile").read_text(encoding="utf-8").split("\ncheck:")[1].split("\n\n")[0]
    assert rule.rstrip().endswith("test")
