"""Check that comparisons of a configuration with itself find no difference.

    python -m benchmarks.same_settings [TIMES] [--busy] [--rounds N] [--model FILE]

The workload's own settings are compared with themselves, as `autotune compare` does, again and
again. The 95 % interval should contain 1 in at least 18 of 20 comparisons. `--busy` keeps one core
busy for a random half of the time, as another program would. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from math import ceil
from pathlib import Path
from statistics import median

from autotune.comparison.compare import ComparisonOptions, Side, compare
from autotune.comparison.rounds import PairedComparison
from autotune.context.options import WorkloadOptions
from autotune.process.runner import SubprocessRunner

DIGITS = Path(__file__).resolve().parent.parent / "studies" / "digits_cnn" / "model.py"
GOAL = 0.9
# Program that works and rests in turns of random length, each half of the time.
BUSY = """
import random, time
while True:
    end = time.monotonic() + random.uniform(0.5, 4.0)
    while time.monotonic() < end:
        pass
    time.sleep(random.uniform(0.5, 4.0))
"""


def main() -> None:
    """Compare as often as asked, and print a table with a summary."""
    parser = argparse.ArgumentParser()
    parser.add_argument("times", nargs="?", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", type=Path, default=DIGITS)
    parser.add_argument("--busy", action="store_true")
    arguments = parser.parse_args()
    load = os.getloadavg()
    print(f"{os.cpu_count()} cores, load before: {load[0]:.2f} {load[1]:.2f} {load[2]:.2f}")
    print("| comparison | ratio | 95 % interval | holds 1 | seconds |")
    print("|---|---|---|---|---|")
    with busy_core() if arguments.busy else nullcontext():
        comparisons = [row(number, arguments) for number in range(arguments.times)]
    held = sum(map(holds_one, comparisons))
    distance = median(abs(comparison.ratio - 1) for comparison in comparisons)
    total = len(comparisons)
    print(f"the interval holds 1 in {held} of {total}  goal: {ceil(GOAL * total)} or more")
    print(f"median distance of the ratio from 1: {100 * distance:.2f} %")


def row(number: int, arguments: argparse.Namespace) -> PairedComparison:
    """Run one comparison and print it as a row of the table."""
    own = Side("your settings", None)
    workload = WorkloadOptions(arguments.model)
    options = ComparisonOptions(workload, own, own, arguments.rounds, seed=number)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with SubprocessRunner(folder / "inductor") as runner:
            *_, comparison = compare(options, runner, folder)
    seconds, (low, high) = time.perf_counter() - start, comparison.interval
    verdict = "yes" if holds_one(comparison) else "no"
    interval = f"{low:.3f} to {high:.3f}"
    print(
        f"| {number} | {comparison.ratio:.3f} | {interval} | {verdict} | {seconds:.0f} |",
        flush=True,
    )
    return comparison


def holds_one(comparison: PairedComparison) -> bool:
    """Return whether the interval of the ratio contains 1."""
    low, high = comparison.interval
    return low <= 1 <= high


@contextmanager
def busy_core() -> Iterator[None]:
    """Run another program that keeps a core busy at times."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
