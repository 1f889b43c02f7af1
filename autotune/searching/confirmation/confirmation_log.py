"""Confirmation log: the outcome of each candidate, kept in the study for later readers."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import TypeVar

from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.events import CandidateRefused, CandidateSetAside, Event, RoundEnded
from autotune.storage.note_types import CandidateLog, Confirmation
from autotune.study.study import TuningStudy

ConfirmationLog = dict[int, CandidateLog]
"""Confirmation log: entries by the trial's number."""
T = TypeVar("T")


def kept(study: TuningStudy, confirmation: Generator[Event, None, T]) -> Generator[Event, None, T]:
    """Pass on events and result, and note the confirmation log in the study at the end."""
    numbers = {trial.config: trial.number for trial in study.finished()}
    confirmation_log: ConfirmationLog = {}
    start = time.monotonic()
    while True:
        try:
            event = next(confirmation)
        except StopIteration as end:
            seconds = round(time.monotonic() - start, 1)
            study.notes.confirmation = Confirmation(seconds, confirmation_log)
            result: T = end.value
            return result
        _keep(confirmation_log, numbers, event)
        yield event


def _keep(
    confirmation_log: ConfirmationLog, numbers: Mapping[TrainingConfig, int], event: Event
) -> None:
    match event:
        case RoundEnded(config, ratios, interval, disturbed=disturbed):
            # This replaces the entry of a candidate that was set aside and is tested again.
            low, high = interval
            confirmation_log[numbers[config]] = CandidateLog(
                ratios=tuple(round(ratio, 4) for ratio in ratios),
                ci95=(round(low, 4), round(high, 4)),
                disturbed=disturbed or None,
            )
        case CandidateRefused(trial, reason):
            known = confirmation_log.get(trial.number, CandidateLog())
            confirmation_log[trial.number] = replace(known, refused=reason)
        case CandidateSetAside(trial, other):
            known = confirmation_log.get(trial.number, CandidateLog())
            confirmation_log[trial.number] = replace(known, set_aside_for=other.number)
        case _:
            pass
