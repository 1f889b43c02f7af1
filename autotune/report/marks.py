"""What the diagrams of trials share: how high a trial stands, what its mark says, the legend."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from autotune.config import render
from autotune.report.data import ReportData
from autotune.report.svg import Scale, mark, markup, picture
from autotune.text import size
from autotune.tuning.storing.study import FinishedTrial

WIDTH = 760.0
LABELS = {
    "baseline": "your settings",
    "answer": "the answer",
    "feasible": "feasible",
    "refused": "did not hold when it was put to the test",
    "memory": "infeasible: memory",
    "accuracy": "infeasible: accuracy",
    "failed": "infeasible: did not run",
    "open": "lost or running",
}
MOST_REASON = 120
"""Characters of a reason that a mark says."""


@dataclass(frozen=True)
class Rate:
    """What is drawn upwards: the ratio to the baseline, or the value where there is none."""

    data: ReportData

    @property
    def relative(self) -> bool:
        """Whether there is a baseline to compare with."""
        return bool(self.data.baseline and self.data.baseline.verdict.value)

    @property
    def name(self) -> str:
        """Of the axis."""
        return "times the rate of your settings" if self.relative else "samples/s"

    def of(self, trial: FinishedTrial) -> float | None:
        """Where a trial stands; None where it has no value."""
        return self.data.ratio(trial) if self.relative else trial.verdict.value

    def spelled(self, value: float) -> str:
        """A tick."""
        return f"{value:g}x" if self.relative else f"{value:g}"

    def scale(self, start: float, end: float) -> Scale:
        """From nothing to a little above the fastest trial."""
        found = [self.of(trial) for trial in self.data.trials]
        highest = max((value for value in found if value is not None), default=1.0)
        return Scale(0.0, 1.08 * max(highest, 1.0 if self.relative else 0.0), start, end)


def legend(data: ReportData) -> Markup:
    """Every kind of mark that the diagrams of this study hold, with its name."""
    kinds = dict.fromkeys(data.standing(trial) for trial in data.trials)
    found = [kind for kind in LABELS if kind in kinds or (kind == "open" and data.archive.open)]
    entries = []
    for kind in found:
        swatch = picture(20, 18, "")
        swatch.attrib = {"viewBox": "0 0 20 18", "aria-hidden": "true", "class": "swatch"}
        mark(swatch, (10, 9), kind)
        entries.append(Markup("<li>{}{}</li>").format(markup(swatch), LABELS[kind]))
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(entries))


def tip_of(data: ReportData, trial: FinishedTrial) -> str:
    """What a mark says when it is pointed at."""
    ratio, rate = data.ratio(trial), trial.details.get("samples_per_second")
    memory = trial.details.get("peak_memory_bytes")
    facts = [
        "" if ratio is None else f"{ratio:.2f}x",
        "" if rate is None else f"{rate:.1f} samples/s",
        "" if memory is None else size(memory),
        render(data.differences(trial.config)) or "your settings",
        trial.verdict.reason[:MOST_REASON],
    ]
    return f"trial {trial.number}: " + "; ".join(filter(None, facts))
