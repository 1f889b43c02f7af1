"""Parts shared by diagrams of trials: vertical scale, tooltips of marks, legend."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from autotune.configuration.training_config import render
from autotune.report.data import ReportData
from autotune.report.svg import Scale, mark, markup, picture
from autotune.study.study import FinishedTrial
from autotune.values.text import size

WIDTH = 760.0
LABELS = {
    "baseline": "your settings",
    "answer": "the answer",
    "feasible": "feasible",
    "refused": "not confirmed",
    "memory": "infeasible: memory",
    "accuracy": "infeasible: accuracy",
    "failed": "infeasible: did not run",
    "open": "lost or running",
}
MOST_REASON = 120
"""Most characters of a reason in a tooltip."""


@dataclass(frozen=True)
class Rate:
    """Vertical coordinate of a trial: its ratio to the baseline, or its value without one."""

    data: ReportData

    @property
    def relative(self) -> bool:
        """Return True if there is a baseline to compare with."""
        return bool(self.data.baseline and self.data.baseline.verdict.value)

    @property
    def name(self) -> str:
        """Return the name of the axis."""
        return "times the rate of your settings" if self.relative else "samples/s"

    def of(self, trial: FinishedTrial) -> float | None:
        """Return the coordinate of a trial; None if it has no value."""
        return self.data.ratio(trial) if self.relative else trial.verdict.value

    def spelled(self, value: float) -> str:
        """Return the label of a tick."""
        return f"{value:g}x" if self.relative else f"{value:g}"

    def scale(self, start: float, end: float) -> Scale:
        """Return the scale from 0 to a little above the fastest trial."""
        found = [self.of(trial) for trial in self.data.trials]
        highest = max((value for value in found if value is not None), default=1.0)
        return Scale(0.0, 1.08 * max(highest, 1.0 if self.relative else 0.0), start, end)


def legend(data: ReportData) -> Markup:
    """Return a list of the kinds of marks in this study's diagrams, with their names."""
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
    """Return the tooltip of a trial's mark."""
    ratio, rate = data.ratio(trial), trial.details.samples_per_second
    memory = trial.details.peak_memory_bytes
    facts = [
        "" if ratio is None else f"{ratio:.2f}x",
        "" if rate is None else f"{rate:.1f} samples/s",
        "" if memory is None else size(memory),
        render(data.differences(trial.config)) or "your settings",
        trial.verdict.reason[:MOST_REASON],
    ]
    return f"trial {trial.number}: " + "; ".join(filter(None, facts))
