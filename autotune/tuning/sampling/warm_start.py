"""What an earlier search found, as the first trials of a new one: its ideas, not its numbers.

Another machine, another version of the model: what was best there is worth a trial here. Settings
that this search space does not have are replaced by ones that it has.
"""

from __future__ import annotations

from pathlib import Path

from autotune.best import read_best
from autotune.config import TrainingConfig
from autotune.errors import UsageError
from autotune.tuning.storing.opening import read_study

_BEST_FEW = 3


def seeds_from(source: str) -> tuple[TrainingConfig, ...]:
    """The best configurations of a study's folder, its database or a best.yaml, the best first.

    Raises:
        UsageError: there is nothing of the kind at `source`.
    """
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        return (read_best(path).training_config,)
    own = Path("studies", source, "study.db")
    if own.is_file():
        path = own
    elif path.is_dir():
        path = path / "study.db"
    if not path.is_file():
        raise UsageError(
            f"--warm-start {source!r}: there is neither {path} nor {own}. Name a best.yaml, a "
            "study of this folder, or the folder or database of one."
        )
    trials = read_study(f"sqlite:///{path}")
    feasible = [t for t in trials if t.verdict.feasible and t.verdict.value is not None]
    feasible.sort(key=lambda trial: -(trial.verdict.value or 0.0))
    if not feasible:
        raise UsageError(f"--warm-start {source!r}: no trial of {path} was feasible.")
    return tuple(trial.config for trial in feasible[:_BEST_FEW])
