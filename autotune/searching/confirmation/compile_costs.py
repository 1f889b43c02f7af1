"""Seconds that a configuration takes to start for the first time, compilation included.

The processes of a confirmation find the code that torch.compile made for trials in its cache. The
cost of compiling therefore comes from the trial that compiled first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.configuration.constraints import fixed_seconds
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.seconds import compiles_alike
from autotune.study.facts import TrialDetails
from autotune.study.finished import FinishedTrial
from autotune.values.measurement import Measurement


@dataclass(frozen=True)
class ColdCosts:
    """The highest measured start costs: those of the process that had to compile."""

    trials: Sequence[FinishedTrial]
    """Finished trials, the baseline first."""
    baseline_runs: Sequence[Measurement]

    def compile_seconds(self, config: TrainingConfig) -> float:
        """Return the seconds of torch.compile with an empty cache; 0 if nothing compiled."""
        return self._highest(config, "compile_seconds")

    def fixed_seconds(self, config: TrainingConfig, run: Measurement) -> float:
        """Return the seconds that a run pays once.

        They are the start of the process of `run` and the compilation of the first such process.
        """
        return fixed_seconds(run, self._highest(config, "one_time_seconds"))

    def fixed_seconds_of(self, trial: FinishedTrial) -> float:
        """Return the seconds that a run with a trial's configuration pays once."""
        own = trial.details.one_time_seconds or 0.0
        cold = self._highest(trial.config, "one_time_seconds")
        return (trial.details.fixed_seconds or 0.0) + max(0.0, cold - own)

    def _highest(self, config: TrainingConfig, name: str) -> float:
        alike = [trial for trial in self.trials if compiles_alike(trial.config, config)]
        seen: list[TrialDetails | Measurement] = [trial.details for trial in alike]
        if any(trial is self.trials[0] for trial in alike):
            seen += self.baseline_runs
        return max((getattr(one, name) or 0.0 for one in seen if one.compile_seconds), default=0.0)
