"""Two plots that Optuna Dashboard does not draw by itself, as Plotly's JSON.

The dashboard brings the JavaScript that draws them. Python's plotly package would be installed and
imported only to write what is a dictionary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial

from autotune.config import TrainingConfig, render
from autotune.text import size

_GIB = 1 << 30
_FAR = 1.5
_FEASIBLE, _INFEASIBLE, _MARK = "#0072b2", "#cccccc", "#d55e00"
_LIGHT = "computing alone"
# Nothing is faster, so that above this line the label would be cut off.
_ANCHORS = {_LIGHT: {"yanchor": "top"}}


@dataclass(frozen=True, slots=True)
class Figure:
    """Traces and layout, as `optuna_dashboard.save_plotly_graph_object` takes them."""

    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]

    def to_json(self) -> str:
        """As Plotly reads it."""
        return json.dumps({"data": self.data, "layout": self.layout})


def figures(
    trials: Sequence[FrozenTrial], light: float | None, memory_limit_bytes: int | None
) -> dict[str, Figure]:
    """Name to figure, of the trials that were measured; the first one is the baseline.

    Args:
        trials: Finished ones.
        light: Samples per second of computing alone, with the baseline's settings.
        memory_limit_bytes: What no configuration may exceed.
    """
    measured = [trial for trial in trials if "samples_per_second" in trial.user_attrs]
    if not measured:
        return {}
    rates = {"baseline": measured[0].user_attrs["samples_per_second"], _LIGHT: light}
    peaks = [trial.user_attrs["peak_memory_bytes"] for trial in measured]
    across, limit = "GiB at the peak", None
    if memory_limit_bytes is not None:
        across += f", of {size(memory_limit_bytes)} allowed"
        # A limit that is far away would press the trials together.
        near = memory_limit_bytes <= _FAR * max(peaks)
        limit = memory_limit_bytes / _GIB if near else None
    return {
        "throughput": Figure(
            _points(measured, lambda trial: float(trial.number)),
            _layout("What each trial reached", "trial", _marks("y", rates)),
        ),
        "memory-and-throughput": Figure(
            _points(measured, lambda trial: trial.user_attrs["peak_memory_bytes"] / _GIB),
            _layout("Memory and throughput", across, _marks("x", {"limit": limit})),
        ),
    }


def _points(
    trials: Sequence[FrozenTrial], across: Callable[[FrozenTrial], float]
) -> list[dict[str, Any]]:
    """The trials as points, those that hold every constraint apart from the others."""
    own = TrainingConfig.of(trials[0].user_attrs["config"])
    groups: dict[tuple[str, str], list[FrozenTrial]] = {
        ("feasible", _FEASIBLE): [],
        ("infeasible", _INFEASIBLE): [],
    }
    feasible, infeasible = groups.values()
    for trial in trials:
        holds = all(margin <= 0 for margin in trial.constraints.values())
        (feasible if holds else infeasible).append(trial)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [across(trial) for trial in group],
            "y": [trial.user_attrs["samples_per_second"] for trial in group],
            "text": [_hover(trial, own) for trial in group],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"color": colour, "size": 9},
        }
        for (name, colour), group in groups.items()
    ]


def _hover(trial: FrozenTrial, own: TrainingConfig) -> str:
    changed = TrainingConfig.of(trial.user_attrs["config"]).differences(own)
    rate = trial.user_attrs["samples_per_second"]
    lines = [f"trial {trial.number}: {rate:.1f} samples/s", render(changed) or "your settings"]
    return "<br>".join(lines)


def _marks(axis: str, values: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Lines across the plot at those values that are known, each with its name."""
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
        # At either end, because the two may be close to each other.
        for (name, value), place in zip(values.items(), ("start", "end"), strict=False)
        if value is not None
    ]


def _layout(title: str, across: str, marks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": {"text": title},
        "xaxis": {"title": {"text": across}},
        "yaxis": {"title": {"text": "samples/s"}, "rangemode": "tozero"},
        "shapes": marks,
        "showlegend": True,
    }
