"""Studies in tests: verdicts to tell, and telling them."""

from __future__ import annotations

from autotune.configuration.constraints import Verdict
from autotune.configuration.training_config import TrainingConfig
from autotune.storage.finished_trial import FinishedTrial
from autotune.storage.trial_details import TrialDetails
from autotune.study.study import TuningStudy
from autotune.values.objectives import OBJECTIVES

THROUGHPUT = OBJECTIVES["throughput"]
HOLDS = {"memory": -0.5, "accuracy": -0.01, "ran": -1.0}
OVER_MEMORY = {"memory": 0.25, "accuracy": 0.5, "ran": -1.0}
OOM = {"memory": 0.2, "accuracy": 0.0, "ran": 0.0}
CRASHED = {"memory": 0.0, "accuracy": 0.0, "ran": 1.0}

# Batch sizes, without workers or with two and either factor: 3 x (1 + 2) configurations.
NINE = "batch_size: [16, 32, 64]\nnum_workers: [0, 2]\nprefetch_factor: [2, 4]\n"


def tell(study: TuningStudy, value: float | None, margins: dict[str, float]) -> TrainingConfig:
    """Ask for a configuration and tell this verdict on it."""
    number, config = study.ask()
    study.tell(number, Verdict(value, margins, "why"), TrialDetails(seconds=1.5))
    return config


def told_as(study: TuningStudy, number: int, value: float) -> FinishedTrial:
    """Tell that a trial which was claimed holds every constraint at this value."""
    return study.tell(number, Verdict(value, HOLDS, ""), TrialDetails())
