"""Report as one page that opens offline: no script, nothing fetched, everything escaped.

This module gathers the content, charts in pixels included: the search, and speed-up against memory.
template/page.html lays it out, template/charts.html draws the charts as SVG.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import count, groupby, takewhile
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from autotune import __version__
from autotune.configuration.best_config import gain_text
from autotune.configuration.training_config import render
from autotune.knobs import knob_named
from autotune.knobs.base import spelled
from autotune.report.data import ReportData, headline, next_step, row_of
from autotune.searching.run.diagnosis import limits_of
from autotune.searching.trials.drift import conditions
from autotune.study.facts import FinishedTrial
from autotune.study.history import ConfirmedRate
from autotune.values.strict_yaml import dump
from autotune.values.text import size, span

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 736.0, 36.0, 288.0
# Height of the lane for trials without a rate.
_LANE = 26.0
# Most trials that are drawn with their intervals, and characters of a reason in a tooltip.
_MOST_WHISKERS, _MOST_REASON = 120, 120
# A limit above this many times the highest peak is not drawn, to leave the marks room.
_FAR = 1.5
_MOST_DATES = 6
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

Point = tuple[float, float]
Tick = tuple[float, str]
"""Place of a label on its axis, and the label."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Map from values to pixels; either end may be the larger pixel."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of a value, to a tenth; values outside are moved to the edge."""
        inside = min(max(value, self.low), self.high)
        share = 0.5 if self.high == self.low else (inside - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int, unit: str = "") -> list[Tick]:
        """Return round values within the scale, `most` at most."""
        values = round_values(self.low, self.high, most)
        return [(self.at(value), f"{value:g}{unit}") for value in values]


def round_values(low: float, high: float, most: int) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten from `low` to `high`, `most` at most."""
    if high <= low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = (step * power * factor for factor in (1, 10, 100) for step in (1.0, 2.0, 5.0))
    step = next(s for s in steps if math.floor(high / s) - math.ceil(low / s) + 1 <= most)
    first = math.ceil(low / step - 1e-9)
    inside = takewhile(lambda n: n * step <= high + 1e-9 * step, count(first))
    return [round(n * step, 12) for n in inside]


@dataclass(frozen=True, slots=True)
class Mark:
    """Mark of a trial, whose shape and colour both show the kind."""

    x: float
    y: float
    kind: str
    tip: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Trials as marks over two axes."""

    label: str
    x_name: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    marks: Sequence[Mark]
    line: Sequence[Point]
    """Steps through the best trials."""
    line_kind: Literal["incumbent", "front"]
    whiskers: Sequence[tuple[float, float, float]] = ()
    """Intervals of trials: the horizontal place, and both ends."""
    limit: Tick | None = None
    """Line at the end of what is allowed, with its name."""
    lane: float = 0.0
    """Height of the lane for trials without a rate, below the lowest one."""
    y_name: str = "speed-up over your settings"


def history(data: ReportData) -> Plot | None:
    """Return every trial in the order of the search, with the incumbent's speed-up as steps."""
    if not data.trials:
        return None
    numbers = [trial.number for trial in data.trials] + [one.number for one in data.archive.open]
    last = max(*numbers, 1)
    silent = any(data.ratio(trial) is None for trial in data.trials)
    lane = _LANE if silent or data.archive.open else 0.0
    x = Scale(-0.02 * last, 1.02 * last, _LEFT, _RIGHT)
    y, in_lane = _rates(data, lane), _BOTTOM - lane / 2
    marks = [
        Mark(x.at(one.number), in_lane if ratio is None else y.at(ratio), kind, _tip(data, one))
        for one in data.trials
        for ratio, kind in [(data.ratio(one), data.standing(one))]
    ]
    for one in data.archive.open:
        tip = f"trial {one.number}: {one.state}. {one.reason[:_MOST_REASON]}"
        marks.append(Mark(x.at(one.number), in_lane, "open", tip))
    intervals = ((one.number, data.ratio_interval(one)) for one in data.trials)
    line = _steps((x.at(n), y.at(best)) for n, best in _incumbents(data))
    return Plot(
        f"Speed-up of {len(data.trials)} trials in the order they ran",
        "trial",
        [tick for tick in x.ticks(8) if tick[1].isdecimal()],
        y.ticks(6, "x"),
        marks,
        [*line, (_RIGHT, line[-1][1])] if line else [],
        "incumbent",
        whiskers=[(x.at(n), y.at(ends[0]), y.at(ends[1])) for n, ends in intervals if ends]
        if len(data.trials) <= _MOST_WHISKERS
        else (),
        lane=lane,
    )


def against_memory(data: ReportData) -> Plot | None:
    """Return speed-ups against peak memory, with the limit and the Pareto-best trials as steps."""
    points = [
        (trial, peak, ratio)
        for trial in data.trials
        for peak, ratio in [(trial.details.peak_memory_bytes, data.ratio(trial))]
        if peak is not None and ratio is not None
    ]
    if not points:
        return None
    limit, peaks = data.memory_limit_bytes, [peak for _, peak, _ in points]
    near = limit is not None and limit <= _FAR * max(peaks)
    low, high = min(peaks), max(*peaks, limit if near and limit is not None else 0)
    pad = 0.1 * max(high - low, 0.05 * high)
    unit, name = next((u for u in _UNITS if high >= 2 * u[0]), _UNITS[-1])
    x = Scale(max(low - pad, 0.0) / unit, (high + pad) / unit, _LEFT, _RIGHT)
    y = _rates(data)
    places = {trial.number: (x.at(peak / unit), y.at(ratio)) for trial, peak, ratio in points}
    return Plot(
        f"Speed-up of {len(points)} trials against peak memory, {name}",
        f"peak memory, {name}",
        x.ticks(8),
        y.ticks(6, "x"),
        [Mark(*places[one.number], data.standing(one), _tip(data, one)) for one, *_ in points],
        _steps(places[trial.number] for trial in data.pareto_best),
        "front",
        limit=(x.at(limit / unit), f"limit {size(limit)}") if near and limit is not None else None,
    )


def over_time(data: ReportData) -> list[Plot]:
    """Return the confirmed rates in their order, a plot for each kind and number of devices.

    A single rate is not drawn.
    """
    rates = sorted(data.rates, key=lambda rate: rate.trained_on)  # each group keeps its order
    groups = (list(alike) for _, alike in groupby(rates, lambda rate: rate.trained_on))
    return [_rates_in_order(alike, data.rate_unit) for alike in groups if len(alike) > 1]


def _rates_in_order(rates: Sequence[ConfirmedRate], unit: str) -> Plot:
    """Return the plot of rates that were measured on the same devices, in as many processes."""
    x = Scale(-0.5, len(rates) - 0.5, _LEFT, _RIGHT)
    y = Scale(0.0, 1.08 * max(rate.ci95[1] for rate in rates), _BOTTOM, _TOP)
    places = [(x.at(n), y.at(rate.samples_per_second)) for n, rate in enumerate(rates)]
    dates = range(0, len(rates), math.ceil(len(rates) / _MOST_DATES))
    tips = [f"{rate.command}: {rate.described(unit)}" for rate in rates]
    return Plot(
        f"{len(rates)} confirmed rates over time on {rates[0].trained_on}",
        "date",
        [(x.at(n), rates[n].date[:10]) for n in dates],
        y.ticks(6),
        [Mark(*place, "answer", tip) for place, tip in zip(places, tips, strict=True)],
        places,
        "front",
        whiskers=[(x.at(n), y.at(one.ci95[0]), y.at(one.ci95[1])) for n, one in enumerate(rates)],
        y_name=unit,
    )


def _rates(data: ReportData, lane: float = 0.0) -> Scale:
    """Return the scale of the speed-ups, from 0 to a little above the highest."""
    found = (data.ratio(trial) for trial in data.trials)
    highest = max((ratio for ratio in found if ratio is not None), default=1.0)
    return Scale(0.0, 1.08 * max(highest, 1.0), _BOTTOM - lane, _TOP)


def _incumbents(data: ReportData) -> Iterable[tuple[int, float]]:
    """Yield each trial that was the incumbent, and its speed-up."""
    best = 0.0
    for trial in data.trials:
        ratio, holds = data.ratio(trial), data.standing(trial) in ("baseline", "answer", "feasible")
        if ratio is not None and holds and ratio > best:
            best = ratio
            yield trial.number, ratio


def _steps(points: Iterable[Point]) -> list[Point]:
    """Return a line that stays at the height of a point up to the next one."""
    line: list[Point] = []
    for x, y in points:
        line += [(x, line[-1][1]), (x, y)] if line else [(x, y)]
    return line


def _tip(data: ReportData, trial: FinishedTrial) -> str:
    """Return the tooltip of a trial's mark."""
    ratio, details = data.ratio(trial), trial.details
    rate, memory = details.samples_per_second, details.peak_memory_bytes
    facts = [
        "" if ratio is None else f"{ratio:.2f}x",
        "" if rate is None else f"{rate:.1f} {data.rate_unit} in the search",
        "" if memory is None else size(memory),
        render(data.differences(trial.config)) or "your settings",
        trial.verdict.reason[:_MOST_REASON],
        *conditions(details),
    ]
    return f"trial {trial.number}: " + "; ".join(filter(None, facts))


# The bar of a phase is cut off at this many times the throughput of training and computing.
_BEYOND = 1.4


@dataclass(frozen=True, slots=True)
class Change:
    """A setting of the result that differs from the user's."""

    knob: str
    own: str
    chosen: str
    why: str
    """The speed-up that it gives, if that was timed, and a sentence on when it pays or hurts."""


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
        history=history(data),
        memory=against_memory(data),
        over_time=over_time(data),
        stages=stages,
        most_of_a_stage=_most(stages),
        total_seconds=sum(phase.seconds for phase in data.phases),
        rows=_rows(data, data.trials),
        pareto=_rows(data, data.pareto_best),
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
    """Return the changes of the result, or of the incumbent without one, with when they pay."""
    config = data.best.training_config if data.best is not None else None
    if config is None and data.incumbent is not None:
        config = data.incumbent.config
    own = data.baseline_config
    if config is None or own is None:
        return []
    gains = (data.best and data.best.evidence.gains) or ()
    told = {name: f"Measured here: {gain_text(gain)}. " for gain in gains for name in gain.settings}
    changed, found = config.differences(own), []
    for name, value in changed.items():
        knob, before = knob_named(name), own[name]
        is_less = value == knob.default
        if type(before) is int and type(value) is int:
            is_less = value < before
        why = f"More can hurt: {knob.hurts}" if is_less else knob.pays
        if knob.needs in changed and value in (knob.default, knob.idle):
            why = knob.summary
        why = f"{told.get(name, '')}{why}"
        found.append(Change(name, spelled(before), spelled(value), why))
    return found


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
