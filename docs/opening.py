"""Write README's example from the search that is recorded in `studies/digits_cnn`.

    python docs/opening.py

The lines are those of `recorded_search.log` and `recorded_best.yaml`. Three dots stand where some
are left out. A test compares README with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from autotune.values.strict_yaml import dump

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
STUDY = ROOT / "studies" / "digits_cnn"
LOG, BEST = STUDY / "recorded_search.log", STUDY / "recorded_best.yaml"
COMMAND = "autotune search studies/digits_cnn/model.py --space quick"
BEGIN, END = "<!-- docs/opening.py writes this -->\n", "<!-- up to here -->\n"

_TRIAL = re.compile(r" *(\d+)  +(?:[\d.]+/s|-)  ")
_LEADER = re.compile(r" *best so far: trial (\d+),")
_WIDEST, _VERDICT = 112, 40
_SHOWN: dict[str, Any] = {
    "autotune": None,
    "config": dict.fromkeys(("batch_size", "num_workers", "amp_dtype")),
    "evidence": {"speedup": dict.fromkeys(("ratio", "ci95"))},
}


def main() -> None:
    """Replace the example in README."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}{opening()}{END}{after}", encoding="utf-8")


def opening() -> str:
    """Return the example as Markdown: command, output, picture, and the file that it wrote."""
    log, best = LOG.read_text(encoding="utf-8"), BEST.read_text(encoding="utf-8")
    facts = yaml.safe_load(best)
    shown = "\n".join(_lines(log.splitlines()))
    told = "\n".join(excerpt(facts, _SHOWN))
    trials = sum(_TRIAL.match(line) is not None for line in log.splitlines())
    day, cores = facts["provenance"]["created"][:10], facts["machine"]["cores"]
    return f"""\
```
$ {COMMAND}
...
{shown}
```

autotune printed these lines on {day}. The search had {trials} trials on {cores} cores without a
GPU and is in none of the tables above. The lines are shortened: the whole log is
`{LOG.relative_to(ROOT)}`. Rates of trials were
measured in the search, and `throughput` in the confirmation, which timed both settings again: each
the median of its side. The speed-up is the median of the rounds' own ratios. A terminal shows a
search like this:

![a search in a terminal](docs/progress.svg)

It wrote this `best.yaml`, shortened as well:

```yaml
{told}
```
"""


def _lines(log: Sequence[str]) -> Iterator[str]:
    """Yield the most telling trials, then the answer; three dots where lines are left out."""
    trials = {int(found[1]): line for line in log if (found := _TRIAL.match(line))}
    numbers = _telling(log, trials)
    for previous, number in zip([numbers[0] - 1, *numbers], numbers, strict=False):
        if number != previous + 1:
            yield "..."
        yield _cut(trials[number])
    yield from ("...", "")
    blank = max(place for place, line in enumerate(log) if not line)
    yield from log[blank + 1 :]


def _cut(line: str) -> str:
    """Shorten a trial to one line of README; settings and verdict keep their start."""
    if len(line) <= _WIDEST:
        return line
    settings, verdict = (part.strip(" ") for part in line.rsplit("  ", 1))
    if len(verdict) > _VERDICT:
        verdict = f"{verdict[:_VERDICT].rpartition(' ')[0]} ..."
    indent = line[: len(line) - len(line.lstrip())]
    settings = f"{indent}{settings}"
    room = _WIDEST - len(verdict) - len(" ...  ")
    if len(settings) > room:
        settings = f"{settings[:room].rpartition(' ')[0]} ..."
    return f"{settings}  {verdict}"


def _telling(log: Sequence[str], trials: Mapping[int, str]) -> list[int]:
    """Return the trials to show.

    These are the last two that became the best so far, and the shortest lines of those stopped
    early and of those infeasible.
    """
    leaders = list(dict.fromkeys(int(found[1]) for line in log if (found := _LEADER.match(line))))
    shortest = sorted(trials, key=lambda number: len(trials[number]))
    kinds = ("stopped early", "infeasible")
    others = [next((n for n in shortest if kind in trials[n]), 0) for kind in kinds]
    return sorted({*leaders[-2:], *others} - {0}) or [0]


def excerpt(data: Mapping[str, Any], shown: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of the parts that `shown` names; three dots stand for the others."""
    for name, inner in shown.items():
        if inner is None:
            yield indent + dump({name: data[name]}).strip()
        else:
            yield f"{indent}{name}:"
            yield from excerpt(data[name], inner, indent + "  ")
    if data.keys() - shown.keys():
        yield f"{indent}..."


if __name__ == "__main__":
    main()
