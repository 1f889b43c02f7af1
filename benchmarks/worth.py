"""Tables of what `benchmarks.more_time` found, from the answers that it wrote.

    python -m benchmarks.worth ANSWERS [--save]

Errors are standard errors over seeds: those of a table, and of a mean of tables the root of the sum
of their squares over the number of tables. Differences are of the same tables and seeds. `--save`
writes benchmarks/results/more_time.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.synthetic import HELD_OUT as _HELD_OUT
from benchmarks.synthetic import NEWER_KNOBS as _NEWER_KNOBS
from benchmarks.synthetic import TUNED_ON as _TUNED_ON

RESULT = Path(__file__).parent / "results" / "more_time.json"
DECIDED_BY = (
    *("digits_cnn", "photos_jpeg", "tabular_mlp", "char_transformer", "chirp_gru"),
    *(world.__name__ for world in _TUNED_ON),
)
NEWER_KNOBS = tuple(world.__name__ for world in _NEWER_KNOBS)
HELD_OUT = ("pendulum_ode", "plain_loop", *(world.__name__ for world in _HELD_OUT))
GROUPS = {
    "mean of those decided by": DECIDED_BY,
    "mean of those kept for the end": HELD_OUT,
    "mean of those with newer knobs": NEWER_KNOBS,
}

Worths = Mapping[tuple[str, str, float], Mapping[int, float]]
"""By table, space and seconds: the worth in percent of each seed's answer."""


def read_worths(path: Path) -> Worths:
    """Read the answers that `benchmarks.more_time --out` has written."""
    found: dict[tuple[str, str, float], dict[int, float]] = defaultdict(dict)
    for line in path.read_text(encoding="utf-8").splitlines():
        table, space, seconds, seed, share, *_ = json.loads(line)
        found[table, space, seconds][seed] = 100 * share
    return found


def mean_and_error(of_tables: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Return the mean over tables and its standard error over the seeds of each."""
    tables = list(of_tables)
    errors = [stdev(one) / math.sqrt(len(one)) if len(one) > 1 else 0.0 for one in tables]
    return fmean(map(fmean, tables)), math.hypot(*errors) / len(tables)


def rows(worths: Worths) -> Iterator[list[str]]:
    """Yield the table: first the means of the groups, then each table."""
    spaces, budgets = _each(worths, 1), _each(worths, 2)
    for title, names in _groups(worths).items():
        for space in spaces:
            cells = [
                [list(worths[name, space, seconds].values()) for name in names]
                for seconds in budgets
            ]
            yield [title, str(space), *map(_cell, cells)]


def falls(worths: Worths) -> Iterator[str]:
    """Yield each place where more time, or a larger space, is worth less by over an error."""
    spaces, budgets = _each(worths, 1), _each(worths, 2)
    times = [
        ((space, one), (space, other), f"{title}, {space}, {one} to {other} s", names)
        for title, names in _groups(worths).items()
        for space in spaces
        for one, other in itertools.pairwise(budgets)
    ]
    sizes = [
        ((one, seconds), (other, seconds), f"{title}, {one} to {other} at {seconds} s", names)
        for title, names in _groups(worths).items()
        for one, other in itertools.pairwise(spaces)
        for seconds in budgets
    ]
    for before, after, words, names in (*times, *sizes):
        change, error = mean_and_error(_changes(worths, names, before, after))
        if change < -max(error, 0.05):
            yield f"{words}: {change:.1f} ± {error:.1f}"


def _changes(
    worths: Worths, names: Iterable[str], before: tuple[str, float], after: tuple[str, float]
) -> Iterator[list[float]]:
    for name in names:
        earlier, later = worths[name, *before], worths[name, *after]
        yield [later[seed] - worth for seed, worth in earlier.items() if seed in later]


def _groups(worths: Worths) -> dict[str, Sequence[str]]:
    tables = _each(worths, 0)
    whole = {title: names for title, names in GROUPS.items() if {*names} <= {*tables}}
    single = {f"kept for the end: {name}" if name in HELD_OUT else name: [name] for name in tables}
    return {**whole, **single}


def _each(worths: Worths, place: int) -> list:  # type: ignore[type-arg]
    return list(dict.fromkeys(key[place] for key in worths))


def _cell(of_tables: Iterable[Sequence[float]]) -> str:
    mean, error = mean_and_error(of_tables)
    return f"{mean:.1f} ± {error:.1f}"


def main() -> None:
    """Print the table and the falls; write the result if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("answers", type=Path)
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    worths = read_worths(arguments.answers)
    columns = ["table", "space", *(f"{seconds} s" for seconds in _each(worths, 2))]
    found, lost = list(rows(worths)), list(falls(worths))
    for row in (columns, *found):
        print(f"| {' | '.join(row)} |")
    print("\n".join(lost))
    if arguments.save:
        _save(columns, found, lost, _seeds(worths))


def _seeds(worths: Worths) -> dict[str, int]:
    """Return the most searches of a cell, by space."""
    return {
        str(space): max(len(each) for key, each in worths.items() if key[1] == space)
        for space in _each(worths, 1)
    }


def _save(
    columns: list[str], found: list[list[str]], lost: list[str], seeds: Mapping[str, int]
) -> None:
    counts = ", ".join(f"{count} of {space}" for space, count in seeds.items())
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    result |= {
        "about": "Replay with a clock. A cell is the mean true rate of the answers in percent of "
        "the best feasible configuration of all three spaces, with its standard error over the "
        f"seeds of each table. Searches a cell: {counts}. A search that kept the settings, or "
        "ended without an answer, is worth what the settings are. Synthetic workloads answer for "
        "any configuration of the shipped spaces; of a recorded table a space has the recorded "
        "values. Code that was compiled once takes a quarter of the seconds the next time.",
        "command": [
            *(
                f"python -m benchmarks.more_time --spaces {space} --seeds {count} "
                "--out answers.jsonl"
                for space, count in seeds.items()
            ),
            "python -m benchmarks.worth answers.jsonl --save",
        ],
        "recorded": time.strftime("%Y-%m-%d"),
        "columns": columns,
        "rows": found,
        "notes": "The aim is that nothing falls. Where more time or a larger space is worth less "
        "by more than the standard error of the difference over the same seeds: "
        f"{'; '.join(lost) or 'nowhere'}.",
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
