"""Versions that errors name are those that pyproject.toml asks for."""

import tomllib
from pathlib import Path

from autotune.process.common.interpreter import SEARCHES

TEXT = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(TEXT)["project"]


def test_the_oldest_torch_is_the_one_that_the_package_asks_for():
    (asked,) = PROJECT["optional-dependencies"]["torch"]
    assert asked.removesuffix("a0") == "torch>={}.{}.0".format(*SEARCHES)
