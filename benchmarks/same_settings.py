"""Whether a comparison of a configuration with itself finds no difference.

    python benchmarks/same_settings.py [TIMES] [--busy] [--rounds N] [--model FILE]

Compares the workload's own settings with themselves, as `autotune compare` does, again and again.
A 95 % interval should hold 1 in 18 of 20 comparisons or more. `--busy` keeps one core busy for a
random half of the time, as another person's program would. Run it on a
machine that does nothing else.
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

from autotune.tuning.confirming.compare import ComparisonOptions, Side, compare
from autotune.tuning.confirming.rounds import Duel
from autotune.tuning.running.runner import SubprocessRunner

DIGITS = Path(__file__).resolve().parent.parent / "studies" / "digits_cnn" / "model.py"
GOAL = 0.9
# Works and rests in turns of random length, each half of the time.
BUSY = """
import random, time
while True:
    end = time.monotonic() + random.uniform(0.5, 4.0)
    while time.monotonic() < end:
        pass
    time.sleep(random.uniform(0.5, 4.0))
"""


def main() -> None:
    """Compare as often as asked, and print a table and what it comes to."""
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
        duels = [row(number, arguments) for number in range(arguments.times)]
    held = sum(map(holds_one, duels))
    distance = median(abs(duel.ratio - 1) for duel in duels)
    print(
        f"the interval holds 1 in {held} of {len(duels)}  goal: {ceil(GOAL * len(duels))} or more"
    )
    print(f"median distance of the ratio from 1: {100 * distance:.2f} %")


def row(number: int, arguments: argparse.Namespace) -> Duel:
    """One comparison, printed as a line of the table."""
    own = Side("your settings", None)
    options = ComparisonOptions(arguments.model, own, own, arguments.rounds, seed=number)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with SubprocessRunner(folder / "inductor") as runner:
            *_, duel = compare(options, runner, folder)
    seconds, (low, high) = time.perf_counter() - start, duel.interval
    verdict = "yes" if holds_one(duel) else "no"
    interval = f"{low:.3f} to {high:.3f}"
    print(f"| {number} | {duel.ratio:.3f} | {interval} | {verdict} | {seconds:.0f} |", flush=True)
    return duel


def holds_one(duel: Duel) -> bool:
    """Whether the interval of the ratio contains no difference."""
    low, high = duel.interval
    return low <= 1 <= high


@contextmanager
def busy_core() -> Iterator[None]:
    """Another program that wants a core, now and then."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
