"""The part of the search space that was measured, on which every claim rests."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.configuration.best_config import Searched
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.storage.identity import Identity
from autotune.study.study import FinishedTrial


def measured_trials(finished: Sequence[FinishedTrial]) -> list[FinishedTrial]:
    """Return the trials that trained and were timed, without the baseline."""
    return [trial for trial in finished[1:] if trial.details.samples_per_second is not None]


def searched_part(identity: Identity | None, finished: Sequence[FinishedTrial]) -> Searched | None:
    """Return the part of the whole space that was tried; None without trials or a known space."""
    space = None if identity is None else identity.space
    if space is None or not finished:
        return None
    measured = measured_trials(finished)
    run = [trial for trial in finished[1:] if not trial.details.foreseen]
    tried = {
        name: _tried(name, values, [finished[0].config, *(trial.config for trial in run)])
        for name, values in space.varied().items()
    }
    return Searched(
        configurations=space.size,
        measured=len(measured),
        failed=len(run) - len(measured),
        tried={name: values for name, values in tried.items() if len(values) > 1},
        never_varied=tuple(name for name, values in tried.items() if len(values) < 2),  # noqa: PLR2004
    )


def _tried(
    name: str, domain: Sequence[Value], configs: Sequence[TrainingConfig]
) -> tuple[Value, ...]:
    """Return the values that were in force: those of the domain in its order, then others."""
    needs = KNOBS[name].needs
    values = {config[name] for config in configs if needs is None or config[needs]}
    known = tuple(value for value in domain if value in values)
    return (*known, *sorted(values - set(known), key=str))
