"""Print versions of packages for `pip install --constraint`, or for LOCK=FILE of the Makefile.

python .ci/versions.py locked    what is installed beside this Python, without local builds
python .ci/versions.py lowest    the lowest versions that pyproject.toml allows
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
# This project, and what installs: each environment has its own.
_LEFT_OUT = {"autotune", "pip"}


def main(which: str) -> None:
    """Print a line for each package."""
    print("\n".join({"locked": locked, "lowest": lowest}[which]()))


def locked() -> list[str]:
    """Return what is installed, in alphabetical order, `torch==2.13.0+cpu` as `torch==2.13.0`."""
    found = {d.metadata["Name"]: d.version.partition("+")[0] for d in distributions()}
    names = sorted(set(found) - _LEFT_OUT, key=str.lower)
    return [f"{name}=={found[name]}" for name in names]


def lowest() -> list[str]:
    """Return the lower bounds of the dependencies and extras, as the only version."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return list(_bounds(chain(project["dependencies"], *extras)))


def _bounds(requirements: Iterator[str]) -> Iterator[str]:
    for requirement in requirements:
        bound = re.fullmatch(r"([\w.-]+)(?:\[.*\])?>=([\d.]+)(?:a0)?(?:,<[\d.]+)?", requirement)
        if bound is not None:
            yield f"{bound[1]}=={bound[2]}"


if __name__ == "__main__":
    main(sys.argv[1])
