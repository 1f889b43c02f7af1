"""Run train-doctor and autotune on the same unchanged scripts, one after the other.

    pip install train-doctor==0.2.0
    python -m benchmarks.with_train_doctor SCRIPT [ARGUMENTS ...]

SCRIPT is a file, or the name of one of the zoo's scripts, which needs no arguments. Both tools run
with their default options, each in a copy of the script's directory. The row has what each took,
the speed-up that it says with its interval, and what it changes; a dash is no proven gain. Run it
on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.zoo.__main__ import HERE, ZOO

COLUMNS = ["script", "tool", "seconds", "speed-up", "changes"]


def main() -> None:
    """Run both and print their rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    entry = next((one for one in ZOO if one.name == asked.script), None)
    script = Path(asked.script) if entry is None else HERE / "scripts" / f"{entry.name}.py"
    arguments = asked.arguments if entry is None else list(entry.arguments)
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    rows = [[script.stem, *tool(script, arguments)] for tool in (with_train_doctor, with_autotune)]
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def with_train_doctor(script: Path, arguments: list[str]) -> list[str]:
    """Return the cells of train-doctor."""
    words = ["-m", "train_doctor", "fix", "--json", "--no-card", "--"]
    seconds, found = _run(script, [*words, sys.executable, script.name, *arguments])
    proven = found.get("proven") or {}
    gain = _gain(proven.get("ratio"), "point", "low", "high")
    return ["train-doctor", f"{seconds:.0f}", gain, proven.get("describe", "-")]


def with_autotune(script: Path, arguments: list[str]) -> list[str]:
    """Return the cells of autotune."""
    words = ["-m", "autotune", "search", script.name, "--json", "--progress", "none"]
    seconds, found = _run(script, [*words, "--", *arguments])
    if found.get("answer") != "faster":
        return ["autotune", f"{seconds:.0f}", "-", found.get("answer", "failed")]
    best, own = found["best"], found["best"]["evidence"]["baseline"]["config"]
    changes = [f"{name}={value}" for name, value in best["config"].items() if value != own[name]]
    ratio = best["evidence"]["speedup"]
    low, high = ratio["ci95"]
    gain = _gain({**ratio, "low": low, "high": high}, "ratio", "low", "high")
    return ["autotune", f"{seconds:.0f}", gain, ", ".join(changes)]


def _gain(found: Mapping[str, float] | None, *names: str) -> str:
    if found is None:
        return "-"
    ratio, low, high = (found[name] for name in names)
    return f"{ratio:.2f}x ({low:.2f} to {high:.2f})"


def _run(script: Path, words: list[str]) -> tuple[float, dict[str, Any]]:
    """Run a module of this interpreter in a copy of the script's directory; return its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder, "copy")
        shutil.copytree(script.parent, there)
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, *words], cwd=there, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - start
    Path(tempfile.gettempdir(), f"{words[1]}-{script.stem}.log").write_text(
        done.stdout + done.stderr
    )
    try:
        return seconds, dict(json.loads(done.stdout))
    except ValueError:
        return seconds, {}


if __name__ == "__main__":
    main()
