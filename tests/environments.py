"""Python environments that lack some packages, made of links to those of this one."""

import re
import sys
import venv
from collections.abc import Collection
from pathlib import Path

ALONE = ("torch", "torchvision", "torchgen", "functorch")
"""Left out of an environment that holds a command line alone."""
NOT_TRAINING = ("autotune", "click", "optuna", "optuna_dashboard", "rich", "sqlalchemy")
"""Left out of an environment that trains: the parent's packages, and ours."""


def environment(folder: Path, without: Collection[str]) -> Path:
    """Make an environment with all packages but some; return its Python."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for place in (Path(place) for place in sys.path if place.endswith("site-packages")):
        for entry in place.iterdir():
            if _package(entry.name) not in without and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def pretend(python: Path, name: str, version: str) -> None:
    """Let a package seem to be installed in a version; importing it fails."""
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    (site / f"{name}.py").write_text("raise ImportError\n")
    facts = site / f"{name}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _package(entry: str) -> str:
    """The package of an entry in site-packages, also of an editable install's files."""
    if "autotune" in entry:
        return "autotune"
    return re.split(r"[-.]", entry.lower(), maxsplit=1)[0]
