"""The Python that trains: that of this process, or one that `--python` names.

A command line of its own, as pipx or uvx install it, has no torch. It measures in the environment
that trains, which needs the child's imports and gets this package itself by PYTHONPATH. Packages
that only some commands need are named with how to get them.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from autotune.values.errors import UsageError

APPLIES = (2, 6)
"""Oldest torch under which `autotune.load` and `autotune run` apply settings."""
SEARCHES = (2, 11)
"""Oldest torch under which settings are searched for and compared."""

_OLDEST_PYTHON = (3, 11)
# Imports of the child besides torch: the distribution of each, and its oldest version, as in
# pyproject.toml.
_NEEDED: dict[str, tuple[str, tuple[int, ...]]] = {
    "numpy": ("numpy", (1, 26)),
    "psutil": ("psutil", (5, 8)),
    "pydantic": ("pydantic", (2, 11)),
    "ruamel": ("ruamel.yaml", (0, 18, 6)),
}
# What some measurements use where it is installed, and what installs packages. Their metadata is
# read alone: where setuptools is, looking for the module pip replaces distutils.
_OPTIONAL = {"pip": "pip", "pynvml": "nvidia-ml-py"}
_STAND_IN = Path(__file__).resolve().parents[1] / "stand_in"
# Prints the environment of an interpreter, its version, and those of packages, "" where unknown.
_DESCRIBE = """\
import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
sys.path = [place for place in sys.path if place]  # not the current folder
needed, optional = json.loads(sys.argv[1])
def known(distribution):
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
found = {name: known(which) for name, which in needed.items() if find_spec(name)}
found.update({name: known(which) for name, which in optional.items() if known(which)})
print(json.dumps([sys.prefix, platform.python_version(), found]))
"""
_START_SECONDS = 60.0
# From the name of an import to the requirement that installs it, as an extra of ours has it.
_REQUIRED = {
    "optuna_dashboard": "optuna-dashboard",
    "pandas": "pandas",
    "psycopg": "psycopg[binary]",
    "pynvml": "nvidia-ml-py",
    "scipy": "scipy",
}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that can train."""

    path: Path
    """Executable, as given: that of a virtual environment is a link which must not be followed."""
    python: str
    """Version, such as 3.12.1."""
    packages: Mapping[str, str] = field(hash=False)
    """Version of each package looked for, by the name of its import; "" where it is unknown."""
    is_other: bool = False
    """True if it is not the one of this process."""

    @property
    def torch(self) -> str | None:
        """Version of torch; None without it, "" if it is unknown."""
        return self.packages.get("torch")

    @property
    def environ(self) -> dict[str, str]:
        """Variables with which it finds this package."""
        if not self.is_other:
            return {}
        inherited = os.environ.get("PYTHONPATH")
        return {
            "PYTHONPATH": os.pathsep.join([str(_STAND_IN), *([inherited] if inherited else [])])
        }

    def command_to_install(self, *requirements: str) -> str:
        """Return the command that installs packages; environments that uv made have no pip."""
        words = " ".join(f"'{requirement}'" for requirement in requirements)
        if "pip" in self.packages:
            return f"{self.path} -m pip install {words}"
        return f"uv pip install --python {self.path} {words}"

    def answer(self, code: str, *arguments: str) -> str:
        """Return what a program prints that it runs, with this package.

        Raises:
            UsageError: the program fails; the message is what it printed to stderr.
        """
        done = _run(self.path, code, arguments, self.environ)
        if done.returncode:
            raise UsageError(done.stderr.strip())
        return done.stdout.strip()

    def check(self, oldest_torch: tuple[int, int]) -> None:
        """Check that it can train under autotune, with torch of at least this version.

        Raises:
            UsageError: it cannot; everything that it lacks is named, with how to get it.
        """
        if faults := list(self._faults(oldest_torch)):
            raise UsageError("\n".join([f"{self.path} cannot train under autotune:", *faults]))

    def _faults(self, oldest_torch: tuple[int, int]) -> Iterator[str]:
        if not reaches(self.python, _OLDEST_PYTHON):
            yield f"  Python {self.python}; autotune needs {_text(_OLDEST_PYTHON)} or newer."
        yield from self._torch_faults(oldest_torch)
        lacking = [
            f"{distribution}>={_text(oldest)}"
            for name, (distribution, oldest) in _NEEDED.items()
            if name not in self.packages or not reaches(self.packages[name], oldest)
        ]
        if lacking:
            command = self.command_to_install(*lacking)
            yield f"  packages are missing or too old: {command}"

    def _torch_faults(self, oldest_torch: tuple[int, int]) -> Iterator[str]:
        if self.torch is None:
            yield "  there is no torch. Install it (pip install torch, or following pytorch.org's"
            yield "  instructions for your device), or name the Python that trains:"
            yield f"  --python {_likely()}, or AUTOTUNE_PYTHON in the environment."
        elif not reaches(self.torch, oldest_torch):
            yield f"  torch {self.torch}; this command needs {_text(oldest_torch)} or newer."
            if oldest_torch > APPLIES and reaches(self.torch, APPLIES):
                yield "  `autotune run`, `autotune export` and `autotune.load` work with it."


@cache
def own_interpreter() -> Interpreter:
    """Return the interpreter of this process."""
    needed = {name: _version(which) for name, which in _needed().items() if find_spec(name)}
    found = {name: told for name, which in _OPTIONAL.items() if (told := _version(which))}
    return Interpreter(Path(sys.executable), platform.python_version(), {**needed, **found})


def check_torch() -> None:
    """Check that settings can be applied to the torch of this process, without importing it.

    Raises:
        UsageError: it is older than the oldest to which they can.
    """
    if (found := own_interpreter().torch) is not None and not reaches(found, APPLIES):
        raise UsageError(
            f"torch {found} is too old: settings are applied to torch {_text(APPLIES)} or newer. "
            "Install one (see pytorch.org)."
        )


def interpreter_at(place: str) -> Interpreter:
    """Return the interpreter at a path, of a name on PATH, or in the folder of an environment.

    Raises:
        UsageError: it is no Python that runs.
    """
    if Path(place).is_dir():
        place = str(Path(place) / "bin" / "python")
    found = shutil.which(place)
    if found is None:
        raise UsageError(f"--python {place}: there is no such program. Name a Python.")
    path = Path(found).absolute()
    try:
        done = _run(path, _DESCRIBE, (json.dumps([_needed(), _OPTIONAL]),), {})
        prefix, python, packages = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise UsageError(
            f"--python {place} is no Python {_text(_OLDEST_PYTHON)} or newer that runs."
        ) from None
    if prefix == sys.prefix:
        return own_interpreter()
    return Interpreter(path, python, packages, is_other=True)


def _run(
    path: Path, code: str, arguments: tuple[str, ...], environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [path, "-c", code, *arguments],
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_START_SECONDS,
        check=False,
    )


def _needed() -> dict[str, str]:
    """Return the distribution of each import that training needs."""
    return {"torch": "torch", **{name: which for name, (which, _) in _NEEDED.items()}}


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def reaches(found: str, oldest: tuple[int, ...]) -> bool:
    """Return True if a version is at least the oldest; vendors' 2.11.0a0+nv counts as 2.11.0."""
    numbers = re.match(r"\d+(?:\.\d+)+", found)
    return numbers is None or tuple(map(int, numbers[0].split("."))) >= oldest


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _likely() -> str:
    """Return a Python that may be the one that trains: the first on PATH, if it is not this."""
    found = shutil.which("python") or shutil.which("python3")
    is_other = found is not None and Path(found).resolve() != Path(sys.executable).resolve()
    return found if found is not None and is_other else "PATH"


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
