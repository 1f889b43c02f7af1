"""Report as one page that opens offline: no script, nothing fetched, everything escaped.

This module gathers the content; template/page.html lays it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from autotune import __version__
from autotune.knobs import knob_named
from autotune.knobs.base import Value, spelled
from autotune.report import charts
from autotune.report.data import ReportData
from autotune.report.effects import Effect
from autotune.report.terminal import headline, next_step, row_of
from autotune.searching.run.diagnosis import limits_of
from autotune.study.finished import FinishedTrial
from autotune.values.strict_yaml import dump
from autotune.values.text import size, span

# The bar of a phase is cut off at this many times the throughput of training and computing.
_BEYOND = 1.4


@dataclass(frozen=True, slots=True)
class Change:
    """A setting of the result that differs from the user's."""

    knob: str
    own: str
    chosen: str
    effect: Effect | None
    why: str
    """Sentence on when such a change pays or hurts."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A throughput to draw: of one phase of a step by itself, or of the whole training."""

    group: str
    name: str
    rate: float
    kind: str


def page(data: ReportData) -> str:
    """Return the whole page as HTML text."""
    best, stages = data.best, _stages(data)
    return _template().render(
        data=data,
        best=best,
        **_hero(data),
        changes=_changes(data),
        next_step=next_step(data),
        history=charts.history(data),
        memory=charts.against_memory(data),
        stages=stages,
        most_of_a_stage=_most(stages),
        total_seconds=sum(phase.seconds for phase in data.phases),
        rows=_rows(data, data.trials),
        pareto=_rows(data, data.pareto_best),
        chosen={} if best is None else best.training_config.as_dict(),
        unmeasured="" if best is None else best.constraints.accuracy.stand_in_text,
        yaml=None if best is None else dump(best.model_dump(mode="json")),
        version=__version__,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


@cache
def _template() -> Template:
    loader = PackageLoader("autotune.report", "template")
    environment = Environment(
        autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"size": size, "span": span, "spelled": spelled}
    return environment.get_template("page.html")


def _hero(data: ReportData) -> dict[str, str]:
    """Return the largest text of the page, and the headline without what that says already."""
    first, _, words = headline(data).partition(": ")
    if data.best is not None and not data.best.keeps_baseline:
        ratio = f"{data.best.evidence.speedup.ratio:.2f}×"  # noqa: RUF001 (a multiplication sign)
        return {"figure": ratio, "lead": first.partition(" ")[2]}
    figure = "No result yet" if data.best is None else "Keep your settings"
    return {"figure": figure, "lead": words[:1].upper() + words[1:]}


def _changes(data: ReportData) -> list[Change]:
    """Return the changes of the result, or of the incumbent without one, the best effect first."""
    config = data.best.training_config if data.best is not None else None
    if config is None and data.incumbent is not None:
        config = data.incumbent.config
    own = data.baseline_config
    if config is None or own is None:
        return []
    changed = config.differences(own)
    found = [_change(data, name, own[name], changed) for name in changed]
    told = {one.knob: one.effect.ratio for one in found if one.effect and one.effect.is_significant}
    return sorted(found, key=lambda one: -told.get(one.knob, 0.0))


def _change(data: ReportData, name: str, own: Value, changed: Mapping[str, Value]) -> Change:
    """Return one of the changes, with its effect in the trials and when it pays."""
    knob, value = knob_named(name), changed[name]
    effect = next((e for e in data.effects if (e.knob, e.value) == (name, value)), None)
    if knob.needs in changed and value in (knob.default, knob.idle):
        why = knob.summary
    elif effect is not None and effect.interval[1] < 1:
        why = "Gains nothing by itself, but was confirmed together with the other changes."
    elif value < own if type(own) is int and type(value) is int else value == knob.default:
        why = f"More can hurt: {knob.hurts}"
    else:
        why = knob.pays
    return Change(name, spelled(own), spelled(value), effect, why)


def _rows(data: ReportData, trials: Iterable[FinishedTrial]) -> list[tuple[str, ...]]:
    """Return the standing of each trial, and its cells."""
    return [(data.standing(trial), *row_of(data, trial)) for trial in trials]


def _stages(data: ReportData) -> list[Stage]:
    """Return the throughput of each phase with the user's settings, and of training with both.

    There are none if no phase was timed.
    """
    stages = data.archive.notes.diagnosis
    if stages is None:
        return []
    found = [Stage("your settings", *one, "stage") for one in limits_of(stages).items()]
    best = data.best
    if best is not None:
        own = best.evidence.baseline.samples_per_second
    else:
        own = (data.baseline and data.baseline.details.samples_per_second) or 0.0
    training = f"training, {'in the search' if best is None else best.measured_in}"
    if own:
        found.append(Stage("your settings", training, own, "baseline"))
    if best is not None and not best.keeps_baseline:
        rate = best.evidence.best.samples_per_second
        found.append(Stage("the result", training, rate, "answer"))
    return found


def _most(stages: list[Stage]) -> float:
    """Return the throughput at which bars are cut off, so that slower phases stay visible."""
    rates = [one.rate for one in stages]
    slow = [one.rate for one in stages if one.kind != "stage" or one.name == "compute"]
    return min(_BEYOND * max(slow or rates), max(rates)) if rates else 0.0
