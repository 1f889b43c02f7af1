"""The commands of the README install what each of them needs, once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from autotune.process.common.interpreter import SEARCHES

ROOT = Path(__file__).parent.parent.parent
FLAKY = """\
from pathlib import Path

def test_it():
    if not (seen := Path("seen")).exists():
        seen.touch()
        raise AssertionError
"""


def planned(folder: Path, *words: str) -> str:
    """Return what `make` would run in a folder with nothing but the project's own files."""
    make = ["make", "--dry-run", "--no-print-directory", "-C", str(folder), *words]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    run = subprocess.run(make, capture_output=True, text=True, check=True, env=environ)
    return run.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def install(checkout: Path, level: str) -> Path:
    """Leave the marks of an environment in which `level` is installed."""
    folder = checkout / ".venv"
    folder.mkdir(exist_ok=True)
    (folder / "constraints.txt").touch()
    installed = folder / f".installed-{level}"
    installed.touch()
    return installed


LEVELS = {
    "demo": "core",
    "test": "test",
    "test-real": "test",
    "test-promises": "test",
    "check": "all",
}


@pytest.mark.parametrize("target", LEVELS)
def test_a_fresh_checkout_makes_its_environment_and_installs(checkout: Path, target: str) -> None:
    plan = planned(checkout, target)
    assert "-m venv .venv" in plan
    assert "pip install" in plan


@pytest.mark.parametrize("target", LEVELS)
def test_a_second_run_installs_nothing(checkout: Path, target: str) -> None:
    install(checkout, LEVELS[target])
    if target == "check":  # it runs `test` as a make of its own
        install(checkout, "test")
    assert "pip install" not in planned(checkout, target)


def test_changed_dependencies_are_installed(checkout: Path) -> None:
    os.utime(install(checkout, "test"), (0, 0))
    assert "pip install" in planned(checkout, "test")


def test_each_command_installs_what_it_needs_and_no_more(checkout: Path) -> None:
    assert "--editable '.[torch]' --group examples\n" in planned(checkout, "demo")
    tested = "--editable '.[dashboard,samplers,table,torch]' --group examples --group test\n"
    assert tested in planned(checkout, "test")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    plan = planned(checkout, "check")
    assert "--editable '.[all,torch]'" in plan
    assert set(project["dependency-groups"]) == set(re.findall(r"--group (\w+)", plan))
    assert "skorch" not in plan
    assert "skorch stable-baselines3" in planned(checkout, "zoo")


def test_the_oldest_torch_is_the_one_that_the_package_asks_for(checkout: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (asked,) = project["optional-dependencies"]["torch"]
    oldest = asked.replace(">=", "==").removesuffix("a0")
    assert f" {oldest} " in planned(checkout, "test-oldest")
    assert oldest == "torch=={}.{}.0".format(*SEARCHES), "which errors name"


def test_every_target_is_described_for_contributors() -> None:
    page = (ROOT / "docs" / "CONTRIBUTING.md").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    described = set(re.findall(r"`make ([\w-]+)", page))
    assert set(phony[1].split()) - described == set()


BROKEN = "def test_it(): assert False"
MANY = "import pytest\n" + FLAKY.replace(
    "def test_it():", "@pytest.mark.parametrize('n', range(4))\ndef test_it(n):"
).replace('"seen"', 'f"seen-{n}"')


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (FLAKY, 0, "1 of at most 3 needed a second run"),
        (BROKEN, 2, "test_one::test_it"),
        (MANY, 2, "More than 3 are not run again"),
    ],
)
def test_what_fails_is_run_once_more_alone(
    checkout: Path, content: str, code: int, said: str
) -> None:
    install(checkout, "test")
    folder = checkout / ".venv" / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    (checkout / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (checkout / "test_one.py").write_text(content)
    (checkout / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "run_tests.py", checkout / "tests")
    for mark in (checkout / ".venv").glob(".installed-*"):
        mark.touch()
    make = ["make", "--no-print-directory", "-C", str(checkout), "test"]
    outer = ("MAKE", "PYTEST")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    done = subprocess.run(make, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
    assert (checkout / "build" / "test.xml").exists()
