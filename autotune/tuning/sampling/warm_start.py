"""What an earlier search found, as the first trials of a new one: its ideas, not its numbers.

Another machine, another version of the model: what was best there is worth a trial here. Settings
that this search space does not have are replaced by ones that it has.
"""

from __future__ import annotations

from autotune.config import TrainingConfig
from autotune.errors import UsageError
from autotune.tuning.storing.archive import read_archive

_BEST_FEW = 3


def seeds_from(storage: str, study: str | None = None) -> tuple[TrainingConfig, ...]:
    """The best configurations of the study of that name, or the only one there, the best first.

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
