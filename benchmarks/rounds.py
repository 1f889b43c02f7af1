"""How often a confirmation calls a candidate faster, and how often its interval is right.

    python -m benchmarks.rounds [TESTS] [--save]

Nothing is trained: the project's own sequential test draws the steps of each process. A round times
as many steps on either side, and processes of the same settings differ by 2 %.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import fmean

from autotune.comparison.rounds import Course, Participant
from autotune.comparison.sequential_test import sequential_test
from autotune.configuration.training_config import TrainingConfig
from autotune.values.measurement import Block, Measurement

RESULT = Path(__file__).parent / "results" / "confirmation_rule.json"
OWN = Participant("baseline", TrainingConfig.of({"batch_size": 8}))
OTHER = Participant("other", TrainingConfig.of({"batch_size": 16}))
PROCESS_NOISE, STEPS, SAMPLES = 0.02, 24, 1000
SPEEDS = (1.0, 1.03, 1.06, 1.15, 1.6)
KINDS: dict[str, Callable[[Random], float]] = {
    "even steps": lambda random: random.lognormvariate(0, 0.05),
    "log-normal steps, deviation 1": lambda random: random.lognormvariate(0, 1),
    "a tenth of the steps ten times as long": lambda random: (
        (10 if random.random() < 0.1 else 1) * random.lognormvariate(0, 0.1)
    ),
    "one step in fifty twenty times as long": lambda random: (
        (20 if random.random() < 0.02 else 1) * random.lognormvariate(0, 0.1)
    ),
}


def row(kind: str, speed: float, tests: int) -> list[object]:
    """Return how many tests were won, their rounds, and how many intervals hold the true ratio."""
    random, won, rounds, held = Random(7), 0, 0, 0

    def time(config: TrainingConfig, *_: object) -> Measurement:
        seconds = fmean(KINDS[kind](random) for _ in range(STEPS))
        seconds *= random.lognormvariate(0, PROCESS_NOISE)
        return measurement(seconds / (speed if config == OTHER.config else 1.0))

    for _ in range(tests):
        course = Course(time, lambda _, run: run.samples_per_second, OWN, Path("nowhere"))
        *_, last = sequential_test(course, OTHER, family=1)
        low, high = last.comparison.interval
        won += last.is_won
        rounds += last.rounds
        held += low <= speed <= high
    share = [f"{100 * count / tests:.1f}" for count in (won, held)]
    return [kind, f"{speed:g}", share[0], f"{rounds / tests:.1f}", share[1]]


def measurement(seconds: float) -> Measurement:
    """Return a process whose samples took so many seconds in all."""
    return Measurement(
        blocks=(Block(seconds, SAMPLES, wait_seconds=0.0),) * 6,
        boundary_seconds=(),
        epoch_samples=None,
        warmup_step_seconds=(),
        compile_seconds=0.0,
        start_seconds=0.0,
        build_seconds=0.0,
        peak_memory_bytes=1,
    )


def main() -> None:
    """Print the table, or write it for docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="?", type=int, default=1000)
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    rows = [row(kind, speed, arguments.tests) for kind in KINDS for speed in SPEEDS]
    if not arguments.save:
        for one in rows:
            print(*one, sep=" | ")
        return
    table = {
        "title": "The rule of six to seventeen rounds, simulated",
        "about": (
            f"{arguments.tests} confirmations a row. A round times {STEPS} steps of each side; "
            "processes differ by 2 %. The samples of both sides differ, as in a script that "
            "shuffles anew in each process."
        ),
        "command": "python -m benchmarks.rounds --save",
        "recorded": datetime.now(UTC).date().isoformat(),
        "machine": "simulated",
        "load": "no effect",
        "columns": [
            "steps",
            "true speed-up",
            "confirmed, %",
            "rounds",
            "intervals that hold the true ratio of means, %",
        ],
        "rows": rows,
    }
    RESULT.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
