"""CI installs versions that pyproject.toml allows, on the Pythons that it names."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from autotune.process.common.interpreter import _NEEDED

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CORE = PROJECT["project"]["dependencies"]
EXTRAS = list(chain(*PROJECT["project"]["optional-dependencies"].values()))
GROUPS = list(chain(*PROJECT["dependency-groups"].values()))
VERSIONS = ROOT / ".ci" / "versions.py"


def versions(text: str) -> dict[str, str]:
    """Names and versions of a file of constraints."""
    lines = (line.partition("==") for line in text.splitlines())
    return {canonicalize_name(name): version for name, _, version in lines}


def named(which: str) -> dict[str, str]:
    """Output of the program of CI."""
    program = [sys.executable, str(VERSIONS), which]
    return versions(subprocess.run(program, capture_output=True, text=True, check=True).stdout)


def jobs() -> Any:
    found = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
    return found["jobs"]


@pytest.mark.parametrize("line", [*CORE, *EXTRAS, *GROUPS])
def test_each_package_is_locked_at_a_version_that_is_allowed(line: str) -> None:
    needed, locked = Requirement(line), versions((ROOT / ".ci/constraints.txt").read_text())
    if needed.name != PROJECT["project"]["name"]:
        assert needed.specifier.contains(locked[canonicalize_name(needed.name)])


def test_the_lowest_versions_are_the_bounds_of_what_users_install() -> None:
    lowest = named("lowest")
    assert lowest["torch"] == "2.11.0"
    for needed in map(Requirement, [*CORE, *EXTRAS]):
        if needed.name != PROJECT["project"]["name"]:
            version = lowest.pop(canonicalize_name(needed.name))
            (bound,) = (one.version for one in needed.specifier if one.operator == ">=")
            assert bound.removesuffix("a0") == version
    assert not lowest


def test_what_another_python_must_have_is_what_is_installed_with_the_package() -> None:
    bounds = {one.name: one.specifier for one in map(Requirement, CORE)}
    for distribution, oldest in _NEEDED.values():
        assert str(bounds[distribution]) == ">=" + ".".join(map(str, oldest))


def test_every_python_that_the_package_names_is_tried() -> None:
    tried = jobs()["newest"]["strategy"]["matrix"]["python"]
    classified = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"]]
    assert {version for version in classified if re.fullmatch(r"3\.\d+", version)} <= set(tried)
    assert PROJECT["project"]["requires-python"] == f">={tried[0]}"
