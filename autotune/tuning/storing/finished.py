"""A finished trial as the study holds it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from autotune.config import TrainingConfig
from autotune.constraints import CONSTRAINTS, UNKNOWN, Verdict
from autotune.errors import StudyMismatchError, UsageError
from autotune.text import readable

QUALITIES, MARGINS = "qualities", "margins"
"""Of the study's notes: what is known of each kind of training, by the text of `TRAINED_AS`."""
TRAINED_AS = "trained_as"
"""Of a trial's attributes: what of its settings can change the trained model, as text."""
RULINGS = "rulings"
"""Of the study's notes: what was found out after trials were told, as margin and reason; by
`TRAINED_AS`, for all that were trained so, or by `alone`, for a single one."""


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """One trial as the study holds it."""

    number: int
    config: TrainingConfig
    verdict: Verdict
    details: Mapping[str, Any]
    """What `tell` was given besides: outcome, interval, memory, seconds ..."""


def finished_trials(study: optuna.Study) -> list[FinishedTrial]:
    """Every trial of a study of autotune's that was told a verdict, in order."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [finished_trial(trial) for trial in complete]


def finished_trial(trial: FrozenTrial) -> FinishedTrial:
    """A trial that this program told; what anyone else wrote into a database is data, no more.

    Raises:
        StudyMismatchError: someone else told it.
    """
    attributes = trial.user_attrs
    try:
        margins = {name: float(m) for name, m in zip(CONSTRAINTS, _margins(trial), strict=True)}
        value, reason = attributes["value"], str(attributes["reason"])
        verdict = Verdict(None if value is None else float(value), margins, reason)
        if not all(map(math.isfinite, (*margins.values(), verdict.value or 0.0))):
            raise ValueError("a number is not finite")
        config = TrainingConfig.of(dict(attributes["config"]))
    except (KeyError, ValueError, TypeError, AttributeError, UsageError) as error:
        raise StudyMismatchError(
            f"trial {trial.number} of the study was not told by autotune ({error}). "
            "Give this search a name of its own with --study NAME."
        ) from error
    return FinishedTrial(trial.number, config, verdict, attributes)


def _margins(trial: FrozenTrial) -> list[float]:
    return list(trial.constraints.values())


def alone(number: int) -> str:
    """The name of a ruling on one trial."""
    return f"trial {number}"


def ruling_on(
    number: int, attributes: Mapping[str, Any], rulings: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """What was found out about a trial after it was told; None where nothing was."""
    found = rulings.get(str(attributes.get(TRAINED_AS))) or rulings.get(alone(number))
    return found or None


def overruled(trial: FinishedTrial, rulings: Mapping[str, Any]) -> FinishedTrial:
    """The trial by what is known of its accuracy by now, with the reason.

    `rulings` is the study's note of that name.
    """
    ruling = ruling_on(trial.number, trial.details, rulings)
    if ruling is None or trial.verdict.reason:
        return trial
    margins = {**trial.verdict.margins, "accuracy": float(ruling["margin"])}
    return replace(trial, verdict=Verdict(trial.verdict.value, margins, str(ruling["reason"])))


def as_known(trial: FinishedTrial, notes: Mapping[str, Any]) -> FinishedTrial:
    """The trial with what was found out about its accuracy since it was told.

    `notes` are the study's.
    """
    trained_as, told = str(trial.details.get(TRAINED_AS)), trial.verdict
    qualities = notes.get(QUALITIES, {}).get(trained_as)
    # One that was never judged passed no gate, and shows nothing that was.
    if qualities and told.feasible and told.margins["accuracy"] != UNKNOWN:
        # What seeds leave open refuses the answer alone; a trial is infeasible by a ruling.
        known = float(notes.get(MARGINS, {}).get(trained_as, UNKNOWN))
        margins = {**told.margins, "accuracy": known if known < 0 else told.margins["accuracy"]}
        details = {**trial.details, "quality": readable(fmean(qualities))}
        trial = replace(trial, verdict=replace(told, margins=margins), details=details)
    return overruled(trial, notes.get(RULINGS, {}))


def best_feasible(trials: Iterable[FinishedTrial]) -> FinishedTrial | None:
    """The feasible trial with the highest value."""
    feasible = [t for t in trials if t.verdict.feasible and t.verdict.value is not None]
    return max(feasible, key=lambda t: t.verdict.value or 0.0, default=None)
