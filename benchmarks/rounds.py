"""How often a confirmation calls a candidate faster, and how often its interval is right.

    python -m benchmarks.rounds [TESTS] [--save]

Nothing is trained: the project's own race draws the steps of each process. A round times as many
steps on either side, and processes of the same settings differ by 2 %. The second table is of
searches among candidates that are all as fast, in which processes differ by 5 %. One after the
other races until one has won, up to four, as in a search. The third table is of a candidate with a
setting that may be taken back by the rounds that confirm the rest.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import fmean, median

from autotune.comparison.race import race
from autotune.comparison.rounds import Course, PairedComparison, Participant
from autotune.configuration.training_config import TrainingConfig
from autotune.values.measurement import Block, Measurement

RESULTS = Path(__file__).parent / "results"
OWN = Participant("baseline", TrainingConfig.of({"batch_size": 8}))
OTHER = Participant("other", TrainingConfig.of({"batch_size": 16}))
PROCESS_NOISE, STEPS, SAMPLES = 0.02, 24, 1000
EQUALS, SPEEDS_OF_EQUALS, NOISE_OF_EQUALS = (1, 2, 4), (1.0, 1.3), 0.05
SPEED_OF_REST, GAINS = 1.3, (1.0, 1.02, 1.05, 1.1, 1.3)
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
        *_, last = race(course, OTHER, family=1)
        low, high = last.comparison.interval
        won += last.has_won
        rounds += last.rounds
        held += low <= speed <= high
    share = [f"{100 * count / tests:.1f}" for count in (won, held)]
    return [kind, f"{speed:g}", share[0], f"{rounds / tests:.1f}", share[1]]


def row_of_equals(candidates: int, speed: float, searches: int) -> list[object]:
    """Return how many searches were won, their processes, and what was told of the last candidate.

    That is the share of intervals that hold its true speed-up, and the percent by which the median
    of the speed-ups told exceeds it.
    """
    random, won, processes, held = Random(11), 0, 0, 0
    told: list[float] = []

    def time(config: TrainingConfig, *_: object) -> Measurement:
        nonlocal processes
        processes += 1
        seconds = random.lognormvariate(0, NOISE_OF_EQUALS)
        return measurement(seconds / (speed if config == OTHER.config else 1.0))

    for _ in range(searches):
        for family in range(1, candidates + 1):
            course = Course(time, lambda _, run: run.samples_per_second, OWN, Path("nowhere"))
            *_, last = race(course, OTHER, family)
            if last.has_won:
                break
        low, high = last.comparison.interval
        won += last.has_won
        held += low <= speed <= high
        told.append(last.comparison.ratio)
    share = [f"{100 * count / searches:.1f}" for count in (won, held)]
    too_much = 100 * (median(told) / speed - 1)
    each = f"{processes / searches:.0f}"
    return [str(candidates), f"{speed:g}", share[0], each, share[1], f"{too_much:.1f}"]


def row_of_settings(gain: float, races: int) -> list[object]:
    """Return what becomes of a setting that gives so much to a candidate 1.3 times as fast.

    That is how often it is taken back, the share of intervals of its gain that hold it, and the
    share of the intervals of what is emitted that hold its true speed-up.
    """
    random, won, taken_back, held, emitted = Random(13), 0, 0, 0, 0
    less = Participant("less", TrainingConfig.of({"batch_size": 32}))

    def time(config: TrainingConfig, *_: object) -> Measurement:
        speed = {OTHER.config: SPEED_OF_REST * gain, less.config: SPEED_OF_REST}.get(config, 1.0)
        return measurement(random.lognormvariate(0, NOISE_OF_EQUALS) / speed)

    for _ in range(races):
        course = Course(time, lambda _, run: run.samples_per_second, OWN, Path("nowhere"))
        *_, last = race(course, OTHER, 1, [less])
        without = last.without[less]
        won += last.has_won
        taken_back += last.has_won and without.is_enough
        held += within(gain, without.gain)
        true = SPEED_OF_REST * (1.0 if without.is_enough else gain)
        emitted += within(true, without.own if without.is_enough else last.comparison)
    return [f"{gain:g}", *(f"{100 * n / races:.1f}" for n in (won, taken_back, held, emitted))]


def within(true: float, comparison: PairedComparison) -> bool:
    """Return whether the interval of a comparison holds the true ratio."""
    low, high = comparison.interval
    return low <= true <= high


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
    tests = arguments.tests
    rows = [row(kind, speed, tests) for kind in KINDS for speed in SPEEDS]
    equals = [row_of_equals(count, speed, tests) for count in EQUALS for speed in SPEEDS_OF_EQUALS]
    settings = [row_of_settings(gain, tests) for gain in GAINS]
    if not arguments.save:
        for one in (*rows, *equals, *settings):
            print(*one, sep=" | ")
        return
    common = {
        "command": "python -m benchmarks.rounds --save",
        "recorded": datetime.now(UTC).date().isoformat(),
        "machine": "simulated",
        "load": "no effect",
    }
    rule = {
        "title": "The rule of six to seventeen rounds, simulated",
        "about": (
            f"{tests} confirmations a row. A round times {STEPS} steps of each side; "
            "processes differ by 2 %. The samples of both sides differ, as in a script that "
            "shuffles anew in each process."
        ),
        **common,
        "columns": [
            "steps",
            "true speed-up",
            "confirmed, %",
            "rounds",
            "intervals that hold the true ratio of means, %",
        ],
        "rows": rows,
    }
    choice = {
        "title": "Equal candidates, simulated",
        "about": (
            f"{tests} searches a row among candidates that are all as fast as the second column "
            "says; processes differ by 5 %. One after the other races until one has won, up to "
            "four. The last two columns are of the last one, whether it won or not."
        ),
        **common,
        "columns": [
            "candidates",
            "true speed-up",
            "confirmed, %",
            "processes",
            "intervals that hold the true speed-up, %",
            "told too much, median, %",
        ],
        "rows": equals,
    }
    minimal = {
        "title": "Settings that are taken back, simulated",
        "about": (
            f"{tests} races a row of a candidate with a setting that gives what the first column "
            f"says and others that give {SPEED_OF_REST:g}; processes differ by 5 %. The setting "
            "is taken back where it does not pay beyond the noise. The last column is of the "
            "speed-up of what is emitted."
        ),
        **common,
        "columns": [
            "the setting gives",
            "confirmed, %",
            "taken back, %",
            "intervals of its gain that hold it, %",
            "of the speed-up, %",
        ],
        "rows": settings,
    }
    tables = {"confirmation_rule": rule, "race_of_equals": choice, "settings_taken_back": minimal}
    for name, table in tables.items():
        text = json.dumps(table, indent=2) + "\n"
        (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
