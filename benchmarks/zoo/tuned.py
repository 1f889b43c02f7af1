"""Search scripts that are tuned already, each as it is and with one setting that is a mistake here.

    python -m benchmarks.zoo.tuned [NAME ...] [--seconds S] [--save]

The scripts set autocast, compilation, optimizer kernels, threads and workers themselves. Their flag
`--mistake` gets one of these wrong for a machine of two cores. Each script is searched both
ways by one command with the default options. A mistake is found if the answer changes the setting.
`cost` is the baseline's throughput with the mistake over that without it, as the two searches
measured them. zoo-NAME.log in the temporary folder has what a search said. `--save` writes
the rows to benchmarks/results/zoo_tuned.json. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.zoo import images
from benchmarks.zoo.__main__ import refusal, told

SCRIPTS = Path(__file__).resolve().parent / "tuned_scripts"
RESULTS = SCRIPTS.parent.parent / "results" / "zoo_tuned.json"
COLUMNS = [
    "script",
    "its settings",
    "answer",
    "judged by",
    "configurations",
    "failed",
    "seconds",
    "changes",
    "cost",
    "mistake found",
]


@dataclass(frozen=True)
class Tuned:
    """A tuned script, what it needs, and the setting that `--mistake` gets wrong."""

    name: str
    mistake: tuple[str, ...]
    """The setting; several where one of them takes the mistake back."""
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Options of the search; none but for several processes."""


TUNED = (
    Tuned("gpt_loop", ("num_threads",)),
    Tuned("trainer", ("num_workers", "persistent_workers"), needs=("transformers", "accelerate")),
    Tuned("lightning_fit", ("num_workers",), needs=("lightning",)),
    Tuned("timm_amp", ("num_threads",), ("--data-dir", "images"), ("timm",)),
    Tuned("stream", ("num_workers",)),
    Tuned("ddp", ("num_threads",), options=("--nproc-per-node", "2")),
)


def main() -> None:
    """Search the scripts one after the other and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[each.name for each in TUNED])
    parser.add_argument("--seconds", type=int, help="time budget (default: that of the space)")
    parser.add_argument("--save", action="store_true", help="write the rows to the results")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load before: {load:.2f}")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for script in TUNED:
        if script.name in arguments.names:
            rows = list(rows_of(script, arguments.seconds))
            for each in rows:
                print(f"| {' | '.join(each)} |", flush=True)
            if arguments.save:
                save(script.name, rows, load)


def rows_of(script: Tuned, seconds: int | None) -> Iterator[list[str]]:
    """Search a script as it is and with its mistake, and yield a row of the table for each."""
    missing = [name for name in script.needs if importlib.util.find_spec(name) is None]
    if missing:
        yield [script.name, "", f"not run: {', '.join(missing)} is not installed", *[""] * 7]
        return
    rates: list[float] = []
    for mistake in (False, True):
        start = time.perf_counter()
        run = searched(script, seconds, mistake)
        took = f"{time.perf_counter() - start:.0f}"
        way = f"mistake: {script.mistake[0]}" if mistake else "tuned"
        if run.returncode:
            yield [script.name, way, refusal(run), "", "", "", took, "", "", ""]
            continue
        found = json.loads(run.stdout)
        evidence, config = found["best"]["evidence"], found["best"]["config"]
        rates.append(evidence["baseline"]["samples_per_second"])
        cost = f"{rates[1] / rates[0]:.2f}" if len(rates) == 2 else ""
        own = evidence["baseline"]["config"]
        changed = any(config.get(name) != own.get(name) for name in script.mistake)
        yield [script.name, way, *told(found, took), cost, str(changed).lower() if mistake else ""]


def searched(script: Tuned, seconds: int | None, mistake: bool) -> subprocess.CompletedProcess[str]:
    """Search a script in a fresh folder."""
    command = [sys.executable, "-m", "autotune", "search", *script.options, "--json"]
    command += ["--time-budget", f"{seconds}s"] if seconds is not None else []
    command += [str(SCRIPTS / f"{script.name}.py"), "--", *script.arguments]
    command += ["--mistake"] if mistake else []
    with tempfile.TemporaryDirectory() as folder:
        if "images" in script.arguments:
            images.write(Path(folder) / "images")
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    log = Path(tempfile.gettempdir()) / f"zoo-{script.name}{'-mistake' * mistake}.log"
    log.write_text(run.stderr)
    return run


def save(name: str, rows: Sequence[Sequence[str]], load: float) -> None:
    """Write a script's rows in the place of its older ones."""
    known = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []
    kept = [row for row in known if row[0] != name]
    table = {
        "title": "Scripts that are tuned already",
        "about": "Scripts of benchmarks/zoo/tuned_scripts, each searched by one command with the"
        " default options, as it is and with one setting that does not fit this machine."
        " `cost` is the baseline's throughput with the mistake over that without it. A mistake is"
        " found if the answer changes that setting.",
        "command": "python -m benchmarks.zoo.tuned --save",
        "recorded": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, CPU",
        "load": f"{load:.2f} before the first search of the last command",
        "columns": COLUMNS,
        "rows": [*kept, *rows],
    }
    RESULTS.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
