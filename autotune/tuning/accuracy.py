"""Whether a configuration trains as well as the baseline: probes, each run once.

Two configurations that agree in every knob which can change the trained model share one probe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from autotune.config import TrainingConfig
from autotune.constraints import AccuracyRule
from autotune.errors import WorkloadError
from autotune.job import Probe
from autotune.outcome import (
    Failure,
    OutOfMemory,
    Probed,
    TimedOut,
    as_failure,
    describe,
)
from autotune.tuning.runner import Runner
from autotune.tuning.scene import Scene
from autotune.tuning.study import TuningStudy

SEEDS = (0, 1, 2)
PROBE_SECONDS = 6.0
"""Of the baseline's training. Shorter probes judge the first updates only, in which larger batches
always look worse."""
_FEWEST_BASELINE_STEPS = 30
_MOST_SECONDS = 60.0
_NOTE = "qualities"


def probe_samples(scene: Scene, samples_per_second: float) -> int:
    """Samples that every probe trains on: some seconds of the baseline's training.

    A multiple of all batch sizes where that is not much more, so that each really sees as many.
    """
    baseline_batch = int(scene.baseline["batch_size"] or 1)
    enough = _FEWEST_BASELINE_STEPS * baseline_batch
    affordable = math.ceil(_MOST_SECONDS * samples_per_second)
    wanted = max(math.ceil(PROBE_SECONDS * samples_per_second), min(enough, affordable))
    sizes = [size for size in scene.space.domains["batch_size"] if isinstance(size, int)]
    fitting = [unit for unit in (math.lcm(*sizes), max(sizes)) if unit <= wanted]
    unit = fitting[0] if fitting else baseline_batch
    return math.ceil(wanted / unit) * unit


@dataclass(frozen=True)
class AccuracyProber:
    """Runs probes and remembers them in the study."""

    scene: Scene
    runner: Runner
    study: TuningStudy
    samples: int

    def rule(self) -> AccuracyRule | str:
        """What the baseline reaches over several seeds, or why it is no feasible reference.

        Raises:
            WorkloadError: the baseline's own probe fails for another reason than memory or time.
        """
        qualities = self.qualities(self.scene.baseline, len(SEEDS))
        if isinstance(qualities, OutOfMemory | TimedOut):
            return f"accuracy probe: {describe(qualities)}"
        if not isinstance(qualities, tuple):
            raise WorkloadError(
                f"accuracy cannot be measured with your own settings: {describe(qualities)}"
            )
        options, facts = self.scene.options, self.scene.facts
        return AccuracyRule(
            metric="evaluate" if facts.has_evaluate else "held_out_loss",
            higher_is_better=facts.has_evaluate,
            baseline=qualities,
            tolerance=options.accuracy_tolerance.absolute(qualities),
            minimum=options.min_accuracy,
        )

    def qualities(self, config: TrainingConfig, seeds: int) -> tuple[float, ...] | Failure:
        """The quality of `config` for the first `seeds` seeds, or why there is none."""
        known = self.study.noted(_NOTE, {})
        key = config.quality_key()
        have = tuple(known.get(key, ()))
        if len(have) >= seeds:
            return have[:seeds]
        task = Probe(self.samples, SEEDS[len(have) : seeds])
        folder = self._folder(key, len(have))
        outcome = self.runner.run(self.scene.job(task, config), folder)
        if isinstance(outcome, Probed):
            have += outcome.qualities
            self.study.note(_NOTE, {**known, key: list(have)})
            return have
        return as_failure(outcome)

    def _folder(self, key: str, first_seed: int) -> Path:
        name = key.replace(",", "-").replace("=", "_")
        return self.scene.options.folder / "trials" / "accuracy" / f"{name}-seed{first_seed}"
