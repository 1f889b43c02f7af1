"""The torch of this Python, which trains, and packages that only some commands need."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from autotune.values.errors import UsageError

APPLIES = (2, 6)
"""Oldest torch under which `autotune.load` and `autotune run` apply settings."""
SEARCHES = (2, 11)
"""Oldest torch under which settings are searched for and compared."""

# From the name of an import to the requirement that installs it, as an extra of ours has it.
_REQUIRED = {
    "optuna_dashboard": "optuna-dashboard",
    "psycopg": "psycopg[binary]",
    "pymysql": "pymysql",
    "pynvml": "nvidia-ml-py",
    "scipy": "scipy",
}


@cache
def torch_version() -> str | None:
    """Return the version of torch without importing it; None without one, "" if it is unknown."""
    return (_version("torch") or "") if find_spec("torch") else None


def check_torch(oldest: tuple[int, int]) -> None:
    """Check that torch is installed in at least this version, without importing it.

    Raises:
        UsageError: it is not.
    """
    if (found := torch_version()) is None:
        raise UsageError(
            f"there is no torch for {sys.executable}. Install it following pytorch.org's "
            "instructions for your device, or call the autotune of the environment that trains."
        )
    if not is_at_least(found, oldest):
        needed = ".".join(map(str, oldest))
        older = oldest > APPLIES and is_at_least(found, APPLIES)
        others = " `autotune run`, `export` and `autotune.load` work with it." if older else ""
        raise UsageError(
            f"torch {found} is too old: this needs torch {needed} or newer (see pytorch.org)."
            + others
        )


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def is_at_least(found: str, oldest: tuple[int, ...]) -> bool:
    """Return True if a version is at least the oldest; vendors' 2.11.0a0+nv counts as 2.11.0."""
    numbers = re.match(r"\d+(?:\.\d+)+", found)
    return numbers is None or tuple(map(int, numbers[0].split("."))) >= oldest


def is_installed(name: str) -> bool:
    """Return True if a package can be imported, by its name in Python."""
    return find_spec(name) is not None


def how_to_get(name: str) -> str:
    """Return which package is meant, and the command that installs it.

    Environments that uv made have no pip. Only its metadata is read: with setuptools, looking for
    the module pip replaces distutils.
    """
    required = _REQUIRED[name]
    command = f"{sys.executable} -m pip install"
    if _version("pip") is None:
        command = f"uv pip install --python {sys.executable}"
    return f"the package {required.partition('[')[0]}: {command} '{required}'"


def check_installed(name: str, needed_by: str) -> None:
    """Check that what a command needs is installed.

    Raises:
        UsageError: it is not; the message names the package and how to get it.
    """
    if not is_installed(name):
        raise UsageError(f"{needed_by} needs {how_to_get(name)}")
