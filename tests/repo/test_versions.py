"""Versions that errors name are those that pyproject.toml asks for."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from autotune.process.common.interpreter import _NEEDED, SEARCHES

TEXT = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(TEXT)["project"]


def test_what_another_python_must_have_is_what_is_installed_with_the_package():
    bounds = {one.name: one.specifier for one in map(Requirement, PROJECT["dependencies"])}
    for distribution, oldest in _NEEDED.values():
        assert str(bounds[distribution]) == ">=" + ".".join(map(str, oldest))


def test_the_oldest_torch_is_the_one_that_the_package_asks_for():
    (asked,) = PROJECT["optional-dependencies"]["torch"]
    assert asked.removesuffix("a0") == "torch>={}.{}.0".format(*SEARCHES)
