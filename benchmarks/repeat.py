"""Repeat the same default search, and time all of its answers in common rounds.

    python -m benchmarks.repeat [NAME ...] [--runs 5] [--seconds S] [--rounds 12] [--save]

Each run is the same command in a fresh folder. The answers and the user's settings then take turns
in rounds of fresh processes. A row has what a run claimed, what its settings reach in those rounds,
and that as a share of the best run's. A run that kept the settings, or ended without an answer, has
the settings' own 1.00. `--save` writes the rows to benchmarks/results/repeat.json, in the place of
older ones of the same workload. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.comparison.rounds import (
    Course,
    PairedComparison,
    Participant,
    Repeats,
    Results,
    disturbance_in,
    orders,
    play_round,
    time_in_round,
)
from autotune.configuration.job import Measure, MeasurePlan
from autotune.configuration.script import ScriptOptions
from autotune.configuration.training_config import TrainingConfig, render
from autotune.context.options import SearchOptions
from autotune.context.search_context import survey
from autotune.process.runner import SubprocessRunner
from autotune.values.measurement import Measurement
from autotune.values.outcome import Failure

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results" / "repeat.json"
STUDIES, ZOO = REPOSITORY / "studies", REPOSITORY / "benchmarks" / "zoo" / "scripts"
WORKLOADS: dict[str, tuple[Path, tuple[str, ...] | None]] = {
    "digits_cnn": (STUDIES / "digits_cnn" / "model.py", None),
    "photos_jpeg": (STUDIES / "photos_jpeg" / "model.py", None),
    "char_transformer": (STUDIES / "char_transformer" / "model.py", None),
    "train.py digits_cnn": (STUDIES / "train.py", ("digits_cnn",)),
    "memory_map": (ZOO / "memory_map.py", ()),
}
"""File of each workload, and the arguments of a script; None for a model.py."""
COLUMNS = [
    "workload",
    "run",
    "exit",
    "seconds",
    "measured",
    "settings",
    "claimed",
    "in common rounds",
    "share of the best",
]


@dataclass(frozen=True)
class Run:
    """One search."""

    exit_code: int
    seconds: float
    measured: int
    config: TrainingConfig | None
    """The settings of the answer; None if it keeps the user's, or is none."""
    changed: str
    """The settings that the answer changes; empty if it changes none."""
    claimed: float


def main() -> None:
    """Search each workload several times and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, help="time budget (default: that of the space)")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--save", action="store_true", help="write the rows to the results")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load before: {load:.2f}")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for name in arguments.names:
        runs = [searched(name, arguments.seconds) for _ in range(arguments.runs)]
        ratios = common_ratios(name, [one.config for one in runs], arguments.rounds)
        rows = [
            row(name, number, one, ratio, max(1.0, *ratios))
            for number, (one, ratio) in enumerate(zip(runs, ratios, strict=True), start=1)
        ]
        for each in rows:
            print(f"| {' | '.join(each)} |", flush=True)
        if arguments.save:
            save(name, rows, load)


def searched(name: str, seconds: int | None) -> Run:
    """Search a workload by the command line, in a fresh folder."""
    model, words = WORKLOADS[name]
    command = [sys.executable, "-m", "autotune", "search", str(model), "--json"]
    command += ["--time-budget", f"{seconds}s"] if seconds is not None else []
    command += ["--progress", "none", *([] if words is None else ["--", *words])]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
        taken = time.perf_counter() - start
    told = json.loads(done.stdout) if done.stdout.strip() else {}
    if "best" not in told:
        return Run(done.returncode, taken, told.get("measured", 0), None, "", 1.0)
    best, evidence = told["best"], told["best"]["evidence"]
    measured = evidence["searched"]["measured"]
    if told["answer"] == "keep":
        return Run(done.returncode, taken, measured, None, "", 1.0)
    config, changed = TrainingConfig.of(best["config"]), render(evidence["changed"])
    return Run(done.returncode, taken, measured, config, changed, evidence["speedup"]["ratio"])


def common_ratios(name: str, answers: Sequence[TrainingConfig | None], rounds: int) -> list[float]:
    """Return the speed-up of each answer over the user's settings, in rounds of all of them.

    It is 1 for the user's settings, and 0 for settings that fail in a round.
    """
    found = [one for one in dict.fromkeys(answers) if one is not None]
    if not found:
        return [1.0] * len(answers)
    ratios: dict[TrainingConfig | None, float] = {None: 1.0}
    with (
        tempfile.TemporaryDirectory() as folder,
        SubprocessRunner(Path(folder) / "inductor") as runner,
    ):
        course = course_of(name, Path(folder), runner)
        participants = [Participant(f"answer{n}", one) for n, one in enumerate(found)]
        for one, comparison in play(course, participants, rounds).items():
            ratios[one.config] = comparison.ratio
    return [ratios.get(one, 0.0) for one in answers]


def course_of(name: str, folder: Path, runner: SubprocessRunner) -> Course:
    """Return the setup of a workload's rounds: its own settings are the reference."""
    model, words = WORKLOADS[name]
    options = SearchOptions.of(
        model_path=model,
        script=None if words is None else ScriptOptions(words),
        study="repeat",
        storage=None,
        folder=folder,
        out=folder / "best.yaml",
    )
    context = survey(options, runner)

    def timed(
        config: TrainingConfig, place: Path, plan: MeasurePlan, host: str | None, seed: int
    ) -> Measurement | Failure:
        job = replace(context.job(Measure(plan), config), host=host, seed=seed)
        return time_in_round(runner, job, place)

    return Course(
        time=timed,
        worth=lambda _, run: run.samples_per_second,
        baseline=Participant("baseline", context.baseline),
        folder=folder / "rounds",
        host_seconds=context.host_seconds,
    )


def play(
    course: Course, participants: Iterable[Participant], rounds: int
) -> dict[Participant, PairedComparison]:
    """Return the comparison of each participant with the reference, without those that failed.

    Disturbed rounds are void and repeated, at most as often as there are rounds.
    """
    comparisons = {one: PairedComparison() for one in participants}
    field = (course.baseline, *comparisons)
    places, repeats = orders(len(field), course.seed), Repeats[Results](rounds)
    number = 0
    while any(len(one.ratios) < rounds for one in comparisons.values()):
        results = play_round(course, [field[place] for place in next(places)], number)
        for counted in repeats.admit(results, disturbance_in(results)):
            own = counted.get(course.baseline.name)
            for one, comparison in list(comparisons.items()):
                timed = counted.get(one.name)
                if isinstance(own, Measurement) and isinstance(timed, Measurement):
                    reference = course.seconds(course.baseline.config, own)
                    costs = reference, course.seconds(one.config, timed)
                    comparisons[one] = comparison.after(own, timed, costs)
                else:
                    print(f"{one.name} failed: {timed or own}", file=sys.stderr)
                    del comparisons[one]
        number += 1
    return comparisons


def row(name: str, number: int, run: Run, ratio: float, best: float) -> list[str]:
    """Return the cells of one run."""
    settings = run.changed or ("no answer" if run.exit_code else "kept")
    cells = [name, str(number), str(run.exit_code), f"{run.seconds:.0f}", str(run.measured)]
    return [*cells, settings, f"{run.claimed:.2f}", f"{ratio:.2f}", f"{100 * ratio / best:.0f} %"]


def save(name: str, rows: Sequence[Sequence[str]], load: float) -> None:
    """Write the rows of a workload to the results; `benchmarks.page` reads them."""
    table = json.loads(RESULTS.read_text(encoding="utf-8"))
    others = [each for each in table["rows"] if each[0] != name]
    table |= {
        "command": "python -m benchmarks.repeat --save",
        "recorded": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores",
        "load": f"{load:.2f} before the first search",
        "rows": [*others, *map(list, rows)],
    }
    RESULTS.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
