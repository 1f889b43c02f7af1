"""Finished trials: read from Optuna, and what became known of their accuracy afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean

from optuna.trial import FrozenTrial

from autotune.configuration.constraints import CONSTRAINTS, UNKNOWN, VALUE, Verdict
from autotune.configuration.training_config import TrainingConfig
from autotune.study.facts import CONFIG, REASON, StudyFacts, TrialDetails
from autotune.values.errors import StudyMismatchError, UsageError
from autotune.values.text import readable


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """One trial with a verdict."""

    number: int
    config: TrainingConfig
    verdict: Verdict
    details: TrialDetails


def finished_trial(trial: FrozenTrial) -> FinishedTrial:
    """Convert and check a finished trial of Optuna's.

    Raises:
        StudyMismatchError: another program told it.
    """
    attributes = trial.user_attrs
    try:
        told = zip(CONSTRAINTS, trial.constraints.values(), strict=True)
        margins = {name: float(margin) for name, margin in told}
        value, reason = attributes[VALUE], str(attributes[REASON])
        verdict = Verdict(None if value is None else float(value), margins, reason)
        if not all(map(math.isfinite, (*margins.values(), verdict.value or 0.0))):
            raise ValueError("a number is not finite")
        config = TrainingConfig.of(dict(attributes[CONFIG]))
        details = TrialDetails.of(attributes)
    except (KeyError, ValueError, TypeError, AttributeError, UsageError) as error:
        raise StudyMismatchError(
            f"trial {trial.number} of the study was not written by this version of autotune "
            f"({error}). Give this search another --study NAME."
        ) from error
    return FinishedTrial(trial.number, config, verdict, details)


def as_known(trial: FinishedTrial, facts: StudyFacts) -> FinishedTrial:
    """Return the trial with the mean quality over all seeds, those drawn since included."""
    qualities = facts.qualities.get(str(trial.details.training))
    # A trial whose accuracy was never judged gets no quality.
    if not (qualities and trial.verdict.feasible and trial.verdict.margins["accuracy"] != UNKNOWN):
        return trial
    return replace(trial, details=replace(trial.details, quality=readable(fmean(qualities))))


def best_feasible(trials: Iterable[FinishedTrial]) -> FinishedTrial | None:
    """Return the feasible trial with the highest value; None if there is none."""
    feasible = (t for t in trials if t.verdict.feasible and t.verdict.value is not None)
    return max(feasible, key=lambda t: t.verdict.value or 0.0, default=None)
