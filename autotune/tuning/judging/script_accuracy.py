"""Whether a script trains as well under other settings: by what it prints, or not at all.

Nobody but the script knows its loss, so there is no gate. Settings that leave the arithmetic alone
need none; all others are held to the quality that the script itself prints.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.best import UNCHANGED
from autotune.config import TrainingConfig
from autotune.constraints import AccuracyRule
from autotune.knobs import ALL_KNOBS
from autotune.outcome import Failure
from autotune.script import is_harmless
from autotune.tuning.judging.accuracy import AccuracyProber


class NoGates:
    """A gate keeper without gates."""

    def fault(self, config: TrainingConfig) -> None:
        """Nothing is refused."""

    def gated(self, config: TrainingConfig) -> None:
        """Nothing was measured."""

    def needed(self, config: TrainingConfig) -> bool:  # noqa: ARG002
        """No gate is needed."""
        return False


@dataclass(frozen=True)
class ScriptProber(AccuracyProber):
    """Probes a script by running it until it says how good its model is."""

    def rule(self, seeds: int = 1) -> AccuracyRule | Failure:
        """What the script reaches untouched; where it says nothing, nothing may change."""
        if self._tells_quality:
            return super().rule(seeds)
        return AccuracyRule(UNCHANGED, True, (0.0,), tolerance=0.0, minimum=None)

    @property
    def _tells_quality(self) -> bool:
        script = self.scene.options.script
        return script is None or script.metric is not None

    @property
    def _gates(self) -> NoGates:
        return NoGates()

    def trained_as(self, config: TrainingConfig) -> TrainingConfig:
        """What is trained in a probe of `config`."""
        harmless = (knob.name for knob in ALL_KNOBS if is_harmless(knob))
        return config.replace(**{name: self.scene.baseline[name] for name in harmless})

    def _probed(self, config: TrainingConfig, seeds: int) -> tuple[float, ...] | Failure:
        """The quality for each seed, from a process of its own: a script runs once in one."""
        qualities: tuple[float, ...] | Failure = ()
        for number in range(1, seeds + 1):
            qualities = super()._probed(config, number)
            if not isinstance(qualities, tuple):
                break
        return qualities
