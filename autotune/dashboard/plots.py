"""Two plots that Optuna Dashboard does not draw itself, as Plotly's JSON.

The dashboard's JavaScript draws them. The figures are plain dictionaries, so that Python's plotly
package is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.configuration.training_config import TrainingConfig, render
from autotune.storage.finished_trial import FinishedTrial
from autotune.values.text import size

_GIB = 1 << 30
_FAR = 1.5
_FEASIBLE, _INFEASIBLE, _MARK = "#0072b2", "#cccccc", "#d55e00"
_LIGHT = "computing alone, your settings"
# Where no trial is faster, the plot ends at this line, so its label goes below it.
_ANCHORS = {_LIGHT: {"yanchor": "top"}}


@dataclass(frozen=True, slots=True)
class Figure:
    """Traces and layout, as `optuna_dashboard.save_plotly_graph_object` takes them."""

    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]

    def to_json(self) -> str:
        """Return the figure as JSON for Plotly."""
        return json.dumps({"data": self.data, "layout": self.layout})


def figures(
    trials: Sequence[FinishedTrial], light: float | None, memory_limit_bytes: int | None
) -> dict[str, Figure]:
    """Return name to figure, over the measured trials, of which the first is the baseline.

    Args:
        trials: finished trials.
        light: samples per second of the computation alone, under the baseline's settings.
        memory_limit_bytes: the memory limit; None if unknown.
    """
    measured = [trial for trial in trials if trial.details.samples_per_second is not None]
    if not measured:
        return {}
    rates = {"baseline in the search": measured[0].details.samples_per_second, _LIGHT: light}
    peaks = [trial.details.peak_memory_bytes or 0 for trial in measured]
    across, limit = "GiB at the peak", None
    if memory_limit_bytes is not None:
        across += f", of {size(memory_limit_bytes)} allowed"
        # A far limit would squeeze the trials together.
        near = memory_limit_bytes <= _FAR * max(peaks)
        limit = memory_limit_bytes / _GIB if near else None
    return {
        "throughput": Figure(
            _points(measured, lambda trial: float(trial.number)),
            _layout("What each trial reached", "trial", _marks("y", rates)),
        ),
        "memory-and-throughput": Figure(
            _points(measured, lambda trial: (trial.details.peak_memory_bytes or 0) / _GIB),
            _layout("Memory and throughput", across, _marks("x", {"limit": limit})),
        ),
    }


def _points(
    trials: Sequence[FinishedTrial], across: Callable[[FinishedTrial], float]
) -> list[dict[str, Any]]:
    """Return the trials as two groups of points, feasible and infeasible."""
    own = trials[0].config
    groups: dict[tuple[str, str], list[FinishedTrial]] = {
        ("feasible", _FEASIBLE): [],
        ("infeasible", _INFEASIBLE): [],
    }
    feasible, infeasible = groups.values()
    for trial in trials:
        (feasible if trial.verdict.feasible else infeasible).append(trial)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [across(trial) for trial in group],
            "y": [trial.details.samples_per_second for trial in group],
            "text": [_hover(trial, own) for trial in group],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"color": colour, "size": 9},
        }
        for (name, colour), group in groups.items()
    ]


def _hover(trial: FinishedTrial, own: TrainingConfig) -> str:
    rate, changed = trial.details.samples_per_second, render(trial.config.differences(own))
    return f"trial {trial.number}: {rate:.1f} samples/s<br>{changed or 'your settings'}"


def _marks(axis: str, values: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Return labelled lines across the plot at the known values."""
    other = "x" if axis == "y" else "y"
    return [
        {
            "type": "line",
            f"{axis}0": value,
            f"{axis}1": value,
            f"{other}0": 0,
            f"{other}1": 1,
            f"{other}ref": "paper",
            "line": {"color": _MARK, "dash": "dot", "width": 1},
            "label": {"text": name, "textposition": place, **_ANCHORS.get(name, {})},
        }
        # Labels at opposite ends, because the two lines may be close to each other.
        for (name, value), place in zip(values.items(), ("start", "end"), strict=False)
        if value is not None
    ]


def _layout(title: str, across: str, marks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": {"text": title},
        "xaxis": {"title": {"text": across}},
        "yaxis": {"title": {"text": "samples/s in the search"}, "rangemode": "tozero"},
        "shapes": marks,
        "showlegend": True,
    }
