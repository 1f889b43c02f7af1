"""Accuracy of a training script under other settings, judged by the metric that it prints.

There is no numerics check, because autotune does not see the script's loss. Settings that leave
the arithmetic alone need none; all others need the script's metric.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.accuracy.accuracy_verdict import AccuracyProber
from autotune.configuration.accuracy_evidence import UNCHANGED
from autotune.configuration.accuracy_rule import AccuracyRule
from autotune.configuration.script import is_harmless
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS
from autotune.values.outcome import Failure


class NoNumericsChecks:
    """`NumericsChecks` without numerics checks."""

    def fault(self, config: TrainingConfig) -> None:
        """Return None: every configuration passes."""

    def gated(self, config: TrainingConfig) -> None:
        """Return None: nothing is measured."""

    def needed(self, config: TrainingConfig) -> bool:  # noqa: ARG002
        """Return False: no configuration needs a check."""
        return False

    def split(self, config: TrainingConfig) -> None:
        """Return None: nothing is measured."""

    def split_error(self, config: TrainingConfig) -> None:
        """Return None: nothing is measured."""

    def sums_alike(self, config: TrainingConfig) -> bool:  # noqa: ARG002
        """Return False: a script's gradients are not seen."""
        return False


@dataclass(frozen=True)
class ScriptProber(AccuracyProber):
    """Probes a script by running it until it prints its metric."""

    def rule(self, seeds: int = 1) -> AccuracyRule | Failure:
        """Return the rule from the unmodified script; without a metric, training may not change."""
        if self.context.options.workload.has_quality:
            return super().rule(seeds)
        return AccuracyRule(UNCHANGED, True, (0.0,), tolerance=0.0, minimum=None)

    @property
    def _numerics(self) -> NoNumericsChecks:
        return NoNumericsChecks()

    def training_equivalent(self, config: TrainingConfig) -> TrainingConfig:
        """Return the configuration that a probe trains: harmless knobs at the baseline's values."""
        harmless = (knob.name for knob in ALL_KNOBS if is_harmless(knob))
        return self._as_baseline(config, harmless)

    def _probed(self, config: TrainingConfig, seeds: int) -> tuple[float, ...] | Failure:
        """Return the quality for each seed, each from a process of its own."""
        qualities: tuple[float, ...] | Failure = ()
        for number in range(1, seeds + 1):
            qualities = super()._probed(config, number)
            if not isinstance(qualities, tuple):
                break
        return qualities
