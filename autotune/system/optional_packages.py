"""Packages that only some commands need, and the error where one is missing."""

from __future__ import annotations

from importlib.util import find_spec

from autotune.system.interpreter import Interpreter, own_interpreter
from autotune.values.errors import UsageError

# From the name of an import to the requirement that installs it, as an extra of ours has it.
_REQUIRED = {
    "optuna_dashboard": "optuna-dashboard",
    "pandas": "pandas",
    "psycopg": "psycopg[binary]",
    "pynvml": "nvidia-ml-py",
    "scipy": "scipy",
    "tensorboard": "tensorboard",
}


def is_installed(name: str) -> bool:
    """Return True if a package can be imported, by its name in Python."""
    return find_spec(name) is not None


def how_to_get(name: str, python: Interpreter | None = None) -> str:
    """Return which package is meant, and the command that installs it. Default: for this Python."""
    required = _REQUIRED[name]
    command = (python or own_interpreter()).command_to_install(required)
    return f"the package {required.partition('[')[0]}: {command}"


def check_installed(name: str, needed_by: str) -> None:
    """Check that what a command needs is installed.

    Raises:
        UsageError: it is not; the message names the package and how to get it.
    """
    if not is_installed(name):
        raise UsageError(f"{needed_by} needs {how_to_get(name)}")
