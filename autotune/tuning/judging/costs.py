"""What starting costs a configuration the first time it runs.

The processes of a duel find what torch.compile made for the study's trials in its cache, so what
compiling costs has to come from the trial that compiled first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.config import TrainingConfig
from autotune.measurement import Measurement
from autotune.objectives import fixed_seconds
from autotune.tuning.storing.study import FinishedTrial


@dataclass(frozen=True)
class ColdCosts:
    """The highest costs seen: those of the process that had to compile."""

    trials: Sequence[FinishedTrial]
    """The baseline is the first."""
    baseline_runs: Sequence[Measurement]

    def compile_seconds(self, config: TrainingConfig) -> float:
        """What torch.compile takes with an empty cache; 0 for an eager configuration."""
        return self._highest(config, "compile_seconds")

    def fixed_seconds(self, config: TrainingConfig, run: Measurement) -> float:
        """What a run pays once, with the start of this process and the compilation of the first."""
        return fixed_seconds(run, self._highest(config, "one_time_seconds"))

    def fixed_seconds_of(self, trial: FinishedTrial) -> float:
        """The same for a trial of the search, whose process may have found its model compiled."""
        own = float(trial.details.get("one_time_seconds") or 0.0)
        cold = self._highest(trial.config, "one_time_seconds")
        return float(trial.details.get("fixed_seconds") or 0.0) + max(0.0, cold - own)

    def _highest(self, config: TrainingConfig, name: str) -> float:
        if config["compile_mode"] is None:
            return 0.0
        alike = [t for t in self.trials if _compiles_alike(t.config, config)]
        seen = [float(trial.details.get(name) or 0.0) for trial in alike]
        if any(trial is self.trials[0] for trial in alike):
            seen += [float(getattr(run, name)) for run in self.baseline_runs]
        return max(seen, default=0.0)


def _compiles_alike(one: TrainingConfig, other: TrainingConfig) -> bool:
    """Whether one finds in the cache what the other compiled: the same model, for as many threads.

    Whichever of them came first paid for both; that one should not be the slower for it.
    """
    same_threads = one["num_threads"] == other["num_threads"]
    return same_threads and one.quality_key() == other.quality_key()
