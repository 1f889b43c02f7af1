"""A finished trial as the study holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from optuna.trial import FrozenTrial

from autotune.config import TrainingConfig
from autotune.constraints import CONSTRAINTS, Verdict


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """One trial as the study holds it."""

    number: int
    config: TrainingConfig
    verdict: Verdict
    details: Mapping[str, Any]
    """What `tell` was given besides: outcome, interval, memory, seconds ..."""


def read_trial(trial: FrozenTrial) -> FinishedTrial:
    """A trial read back from Optuna.

    Raises:
        KeyError, ValueError, UsageError: it is none of autotune's.
    """
    attributes = trial.user_attrs
    margins = dict(zip(CONSTRAINTS, trial.constraints.values(), strict=True))
    verdict = Verdict(attributes["value"], margins, attributes["reason"])
    return FinishedTrial(trial.number, TrainingConfig.of(attributes["config"]), verdict, attributes)


def best_feasible(trials: Iterable[FinishedTrial]) -> FinishedTrial | None:
    """The feasible trial with the highest value."""
    feasible = [t for t in trials if t.verdict.feasible and t.verdict.value is not None]
    return max(feasible, key=lambda t: t.verdict.value or 0.0, default=None)
