"""Packages that only some commands need: the extra of each, and the error where one is missing."""

from __future__ import annotations

from importlib.util import find_spec

from autotune.values.errors import UsageError

# From the name of an import: the distribution that has it, and the extra that installs that.
_EXTRAS = {
    "optuna_dashboard": ("optuna-dashboard", "dashboard"),
    "pandas": ("pandas", "table"),
    "psycopg": ("psycopg", "postgres"),
    "pynvml": ("nvidia-ml-py", "nvidia"),
    "scipy": ("scipy", "samplers"),
    "tensorboard": ("tensorboard", "tensorboard"),
}


def is_installed(name: str) -> bool:
    """Return True if a package can be imported, by its name in Python."""
    return find_spec(name) is not None


def how_to_get(name: str) -> str:
    """Return which package is meant, and the command that installs it."""
    distribution, extra = _EXTRAS[name]
    return f"the package {distribution}: pip install 'autotune[{extra}]'"


def check_installed(name: str, needed_by: str) -> None:
    """Check that what a command needs is installed.

    Raises:
        UsageError: it is not; the message names the package and how to get it.
    """
    if not is_installed(name):
        raise UsageError(f"{needed_by} needs {how_to_get(name)}")
