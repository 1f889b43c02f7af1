"""What became of the candidates of a confirmation, kept in the study for whoever reads it later."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from typing import Any, TypeVar

from autotune.config import TrainingConfig
from autotune.tuning.events import CandidateRefused, CandidateSetAside, Event, RoundEnded
from autotune.tuning.storing.study import TuningStudy

CONFIRMATION = "confirmation"
"""Of the study's notes: seconds, and what is known of each candidate by its trial's number."""

Fates = dict[str, dict[str, Any]]
T = TypeVar("T")


def kept(study: TuningStudy, confirmation: Generator[Event, None, T]) -> Generator[Event, None, T]:
    """The same events and result; at the end, the study holds what became of each candidate."""
    numbers = {trial.config: trial.number for trial in study.finished()}
    fates: Fates = {}
    start = time.monotonic()
    while True:
        try:
            event = next(confirmation)
        except StopIteration as end:
            seconds = round(time.monotonic() - start, 1)
            study.note(CONFIRMATION, {"seconds": seconds, "candidates": fates})
            result: T = end.value
            return result
        _keep(fates, numbers, event)
        yield event


def _keep(fates: Fates, numbers: Mapping[TrainingConfig, int], event: Event) -> None:
    match event:
        case RoundEnded(config, ratios, interval):
            # Who was set aside and plays again is set aside no longer.
            fates[str(numbers[config])] = {
                "ratios": [round(ratio, 4) for ratio in ratios],
                "ci95": [round(bound, 4) for bound in interval],
            }
        case CandidateRefused(trial, reason):
            fates.setdefault(str(trial.number), {})["refused"] = reason
        case CandidateSetAside(trial, other):
            fates.setdefault(str(trial.number), {})["set_aside_for"] = other.number
        case _:
            pass
