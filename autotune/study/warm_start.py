"""Warm start: the best configurations of another study as the first trials of a new search.

The study may be of another machine or of another version of the model, because only its
configurations are used, not its measurements.
"""

from __future__ import annotations

from autotune.configuration.training_config import TrainingConfig
from autotune.study.archive import read_archive
from autotune.values.errors import UsageError

_BEST_FEW = 3


def seeds_from(storage: str, study: str | None = None) -> tuple[TrainingConfig, ...]:
    """Return the three best configurations of a study, the best first.

    Args:
        storage: URL of the study's storage.
        study: name of the study; None for the only one there.

    Raises:
        UsageError: none of its trials was feasible; or see `read_archive`.
        StorageError: see `read_archive`.
    """
    archive = read_archive(storage, study)
    feasible = [t for t in archive.finished if t.verdict.feasible and t.verdict.value is not None]
    feasible.sort(key=lambda trial: -(trial.verdict.value or 0.0))
    if not feasible:
        raise UsageError(
            f"no trial of study {archive.name!r} in {archive.storage} was feasible. "
            "Name another study, or search without --warm-start."
        )
    return tuple(trial.config for trial in feasible[:_BEST_FEW])
