"""Measure an installation, from nothing and with an empty cache: seconds, megabytes, packages.

    python -m benchmarks.install                  # the core, beside Optuna alone
    python -m benchmarks.install --torch          # also torch with Optuna, beside autotune[torch]
    python -m benchmarks.install --demo           # also `make demo` in a new clone
    python -m benchmarks.install --before COMMIT  # also an earlier version, with --demo its demo

Each is installed by pip into a virtual environment of its own. The seconds are of this network as
much as of the packages: compare those of one run. With --torch and --demo gigabytes are downloaded.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
BEST = Path("studies", "digits_cnn", "recorded_best.yaml")
STARTS = 9
PROGRAMS = {
    "import autotune": "import autotune",
    "autotune.load": "import autotune; autotune.load(BEST)",
    "autotune --help": "import sys; sys.argv[1:] = ['--help']; import autotune.cli as c; c.main()",
    "import optuna": "import optuna",
}


@dataclass(frozen=True)
class Cost:
    """The cost of an installation."""

    name: str
    seconds: float
    megabytes: float
    packages: int


def main() -> None:
    """Print a table of installations, and one of what starts in the core's environment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--before", metavar="COMMIT")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotune-install-") as scratch:
        folder = Path(scratch)
        costs = [installed(folder / "optuna", "optuna", ["optuna"])]
        if arguments.torch:
            costs.append(installed(folder / "torch", "torch, optuna", ["torch", "optuna"]))
            costs.append(installed(folder / "both", "autotune[torch]", [f"{ROOT}[torch]"]))
        started = []
        for commit in filter(None, ("HEAD", arguments.before)):
            clone = cloned(folder / commit, commit)
            environment = folder / f"core-{commit}"
            costs.append(installed(environment, f"autotune, {commit}", [str(clone)]))
            started += starts(environment / "bin" / "python", clone, commit)
            if arguments.demo:
                costs.append(demo(clone, f"make demo with its search, {commit}"))
        print("| installation | seconds | MB | packages |\n|---|---|---|---|")
        for cost in costs:
            print(f"| {cost.name} | {cost.seconds:.0f} | {cost.megabytes:.0f} | {cost.packages} |")
        print("\n| start | seconds, median | over an empty program |\n|---|---|---|")
        print("\n".join(started))


def installed(folder: Path, name: str, requirements: Sequence[str]) -> Cost:
    """Return the cost of installing some requirements into a new environment."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    before = packages(folder)
    size, begun = megabytes(folder), time.monotonic()
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    subprocess.run([*pip, *requirements], check=True)
    seconds = time.monotonic() - begun
    return Cost(name, seconds, megabytes(folder) - size, packages(folder) - before)


def cloned(folder: Path, commit: str) -> Path:
    """Return a clone of this checkout, as it was at some commit."""
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    subprocess.run(["git", "-C", folder, "checkout", "--quiet", commit], check=True)
    return folder


def demo(folder: Path, name: str) -> Cost:
    """Return the cost of README's demo in a clone, with its search."""
    size, begun = megabytes(folder), time.monotonic()
    subprocess.run(["make", "demo"], cwd=folder, env=without_cache(), check=True)
    seconds = time.monotonic() - begun
    return Cost(name, seconds, megabytes(folder) - size, packages(folder))


def without_cache() -> dict[str, str]:
    """Return the environment of this process, in which pip keeps nothing."""
    return {**os.environ, "PIP_NO_CACHE_DIR": "1"}


def starts(python: Path, clone: Path, version: str) -> Iterator[str]:
    """Yield a row for each program: its median seconds, and those beyond an empty one."""
    empty = seconds_of(python, "")
    for name, program in PROGRAMS.items():
        taken = seconds_of(python, program.replace("BEST", repr(str(clone / BEST))))
        yield f"| {name}, {version} | {taken:.3f} | {taken - empty:.3f} |"


def seconds_of(python: Path, program: str) -> float:
    """Return the median seconds of a program; the first run, which compiles, does not count."""
    taken = []
    for _ in range(STARTS + 1):
        begun = time.monotonic()
        flags = ["-W", "ignore"]
        subprocess.run([python, *flags, "-c", program], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.monotonic() - begun)
    return median(taken[1:])


def megabytes(folder: Path) -> float:
    """Return the size of all files below a folder, in 10^6 bytes."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


def packages(folder: Path) -> int:
    """Return the number of distributions that are installed below a folder."""
    return sum(1 for _ in folder.rglob("site-packages/*.dist-info"))


if __name__ == "__main__":
    main()
