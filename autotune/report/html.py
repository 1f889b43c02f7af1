"""Report as one page that opens offline: no script, nothing fetched, everything escaped.

This module gathers the content; page.html and page.css of the folder template lay it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from autotune import __version__
from autotune.configuration.answer_words import keep_reason
from autotune.knobs import knob_named
from autotune.knobs.base import Knob, OneOf, Value, spelled
from autotune.report import knob_charts, stage_charts, trial_charts
from autotune.report.data import ReportData
from autotune.report.effects import Effect, KnobEffect, comes_with, interaction, knob_effects
from autotune.report.explain import explanation, headline
from autotune.report.importance import FEWEST_TO_COMPARE, aliases, importances
from autotune.report.terminal import row_of
from autotune.report.totals import FailureKind, Phase, failure_kinds, phases, rank_table
from autotune.study.finished import FinishedTrial
from autotune.values.strict_yaml import dump
from autotune.values.text import rounds_text, size, span

_TWO = 2
_MOST_TRIALS_NAMED = 12


@dataclass(frozen=True, slots=True)
class Change:
    """A setting of the result that differs from the user's."""

    knob: str
    own: str
    chosen: str
    effect: Effect | None
    note: str
    """Reason for a missing effect."""
    why: str
    """Sentence on when such a change pays or hurts."""


def page(data: ReportData) -> str:
    """Return the whole page as HTML text."""
    return _template().render(**_view(data))


@cache
def _template() -> Template:
    loader = PackageLoader("autotune.report", "template")
    environment = Environment(
        autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"size": size, "span": span, "numbers": _numbers}
    environment.filters["shade"] = stage_charts.shade
    environment.filters["breakable"] = _breakable
    return environment.get_template("page.html")


def _breakable(name: str) -> Markup:
    """Return escaped text whose names may be broken after an underscore."""
    return Markup("_<wbr>").join(map(escape, name.split("_")))


def _view(data: ReportData) -> dict[str, Any]:
    baseline = data.baseline_config
    effects = () if baseline is None else knob_effects(data.trials, baseline)
    spent = phases(data)
    return {
        "data": data,
        "best": data.best,
        "lead": _lead(data),
        "sentences": explanation(data)[1:],
        "figure": _figure(data),
        "changes": changes(data, effects),
        "pair": [one.knob for one in _pair(data, effects)],
        "importances": _importances(data),
        "told_apart": any(one.is_told_apart for one in effects),
        "failures": failure_kinds(data),
        "phases": spent,
        "total_seconds": sum(phase.seconds for phase in spent),
        "charts": _charts(data, effects, spent),
        "rows": _rows(data, data.trials),
        "pareto": _rows(data, data.pareto_best),
        "fastest": _rows(data, data.fastest),
        "busy": _busy(data.fastest),
        "ranks": rank_table(data),
        "unmeasured": "" if data.best is None else data.best.constraints.accuracy.stand_in_text,
        "yaml": None if data.best is None else dump(data.best.model_dump(mode="json")),
        "version": __version__,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _rows(data: ReportData, trials: Iterable[FinishedTrial]) -> list[tuple[str, ...]]:
    """Return the standing of each trial, and its cells."""
    return [(data.standing(trial), *row_of(data, trial)) for trial in trials]


def _busy(trials: Iterable[FinishedTrial]) -> dict[str, str]:
    """Return the share of the time in which the GPU ran kernels, by number, where it is known."""
    runs = {str(trial.number): trial.details.measurement for trial in trials}
    shares = {number: run.gpu_busy_share for number, run in runs.items() if run is not None}
    return {number: f"{100 * one:.0f} %" for number, one in shares.items() if one is not None}


def changes(data: ReportData, effects: tuple[KnobEffect, ...]) -> list[Change]:
    """Return the changes of the result, or of the incumbent without one, the best effect first."""
    config = data.best.training_config if data.best is not None else None
    if config is None and data.incumbent is not None:
        config = data.incumbent.config
    own = data.baseline_config
    if config is None or own is None:
        return []
    by_knob, changed = {effect.knob: effect for effect in effects}, config.differences(own)
    found = []
    for name, value in changed.items():
        knob = knob_named(name)
        effect = by_knob[name].of(value) if name in by_knob else None
        follows = knob.needs in changed and value in (knob.default, knob.idle)
        needed = knob.needs if follows else comes_with(data.trials, name, value)
        note = f"comes with {needed}" if needed else _told_with(effects, name, value)
        why = f"More can hurt: {knob.hurts}" if _is_less(knob, own[name], value) else knob.pays
        if effect is not None and effect.interval[1] < 1 and not follows:
            why = "Gains nothing by itself here, but was confirmed together with the other changes."
        found.append(Change(name, spelled(own[name]), spelled(value), effect, note, why))
    return sorted(found, key=_by_gain)


def _by_gain(change: Change) -> float:
    """Return the key that sorts changes: the largest gain first, those not told apart last."""
    effect = change.effect
    return -effect.ratio if effect is not None and effect.is_told_apart else 0.0


def _told_with(effects: tuple[KnobEffect, ...], name: str, value: Value) -> str:
    """Return the reason why a value has no effect of its own."""
    for one in effects:
        if any(
            name in effect.together and effect.together[name] == value for effect in one.effects
        ):
            return f"always tried with {one.knob}"
    return "too few trials to tell"


def _is_less(knob: Knob, own: Value, chosen: Value) -> bool:
    """Return True if a change goes against the knob's purpose: a smaller number, or its default."""
    if type(own) is int and type(chosen) is int:
        return chosen < own
    return chosen == knob.default


def _figure(data: ReportData) -> str:
    """Return the largest text of the page."""
    if data.best is None:
        return "No answer yet"
    if data.best.keeps_baseline:
        return "Keep your settings"
    return f"{data.best.evidence.speedup.ratio:.2f}×"  # noqa: RUF001 (a multiplication sign)


def _lead(data: ReportData) -> str:
    """Return the text that explains the figure."""
    best = data.best
    if best is None:
        words = headline(data).partition(": ")[2]
        return words[:1].upper() + words[1:]
    speedup = best.evidence.speedup
    if best.keeps_baseline:
        return f"{keep_reason(best.evidence)}{_space(data)}"
    rounds = rounds_text(speedup.rounds, speedup.disturbed_rounds)
    confirmed = f"confirmed in fresh processes, {rounds}{_among(data)}"
    if run := best.evidence.predicted_run:
        length = f"{run.samples:,} {best.evidence.counted}"
        return f"the speed of your settings in a run of {length}, {confirmed}"
    return f"the throughput of your settings, {confirmed}"


def _space(data: ReportData) -> str:
    """Return a sentence on the size of the search space, to follow another; empty if unknown."""
    searched = data.searched
    if searched is None:
        return ""
    return f" The search space has {searched.configurations} configurations."


def _among(data: ReportData) -> str:
    """Return the measured part of the search space, to follow other text; empty if unknown."""
    searched = data.searched
    if searched is None:
        return ""
    were = "was" if searched.measured == 1 else "were"
    return f"; {searched.measured} of {searched.configurations} configurations {were} measured"


def _charts(
    data: ReportData, effects: tuple[KnobEffect, ...], spent: list[Phase]
) -> dict[str, Markup | None]:
    chosen = data.best.training_config.as_dict() if data.best is not None else {}
    unit = data.baseline.verdict.value if data.baseline is not None else None
    pair = None
    if shown := _pair(data, effects):
        # The knob with longer values gets the rows, whose labels have more room.
        columns, rows = sorted((one.knob for one in shown), key=_longest_value)
        pair = knob_charts.interaction(interaction(data.trials, rows, columns), unit)
    return {
        "confirmed": stage_charts.confirmed(data),
        "blocks": stage_charts.blocks(data),
        "limits": stage_charts.stages_alone(data),
        "history": trial_charts.history(data),
        "effects": knob_charts.effects(effects, dict(chosen)),
        "interaction": pair,
        "memory": trial_charts.against_memory(data),
        "accuracy": trial_charts.against_accuracy(data),
        "time": stage_charts.time_spent(spent),
        "legend": trial_charts.legend(data),
    }


def _pair(data: ReportData, effects: tuple[KnobEffect, ...]) -> tuple[KnobEffect, ...]:
    """Return the two knobs told apart with the largest effects; none if they or trials are few."""
    told = tuple(effect for effect in effects if effect.is_told_apart)
    enough = len(told) >= _TWO and len(data.trials) >= FEWEST_TO_COMPARE
    return told[:_TWO] if enough else ()


def _importances(data: ReportData) -> list[tuple[tuple[str, ...], float]]:
    """Return each importance with the knobs that share it."""
    together = aliases(data.trials)
    shares = importances(data.trials)
    return [((name, *together[name]), share) for name, share in shares.items()]


def _longest_value(knob: str) -> int:
    values = knob_named(knob).values
    return max(map(len, map(spelled, values.options))) if isinstance(values, OneOf) else 0


def _numbers(kind: FailureKind) -> str:
    """Return the numbers of the first trials of a kind."""
    shown = ", ".join(map(str, kind.trials[:_MOST_TRIALS_NAMED]))
    return shown if len(kind.trials) <= _MOST_TRIALS_NAMED else f"{shown} ..."
