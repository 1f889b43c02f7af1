"""A study on the disk whose trial 1 was confirmed, and what a report explains of it."""

from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import TrainingConfig
from factories import best_config
from reporting import OWN, trial
from stored_study import report, stored

BASELINE = TrainingConfig.of(OWN)
FASTER = {"amp_dtype": "bfloat16"}
TRIALS = [trial(0), trial(1, 160.0, **FASTER)]


def confirmed(number: int = 1) -> BestConfig:
    """Return the answer that a trial was confirmed at 1.5 times."""
    best = best_config(BASELINE.replace(**FASTER), BASELINE)
    found = best.provenance.model_copy(update={"trial": number})
    return best.model_copy(update={"provenance": found})


def answered(url: str, *others: Any, **notes: Any) -> str:
    """Store a study whose trial 1 was confirmed, and return its URL."""
    return stored(url, [*TRIALS, *others], confirmed(), **notes)


def explained(source: str) -> str:
    """Return what `autotune report --explain` prints."""
    return report(source, "--explain")
