"""Whether a configuration trains as well as the baseline: a gate, then probes, each run once.

What differs from the baseline decides the evidence. Knobs that are exact need none. Knobs of
numerics pass the gate of `autotune.tuning.judging.gates`. Shorter numbers and another batch size
are probed as well: trained on as many samples as the baseline was, seed by seed. Two configurations
that agree in everything that a probe tells share one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune.config import TrainingConfig
from autotune.constraints import AccuracyRule
from autotune.errors import WorkloadError
from autotune.job import Probe
from autotune.non_inferiority import Decision
from autotune.outcome import (
    Failure,
    Gated,
    OutOfMemory,
    Probed,
    TimedOut,
    as_failure,
    describe,
)
from autotune.tuning.judging.gates import NUMERICS, PRECISION, GateFault, GateKeeper, Gates
from autotune.tuning.running.runner import Runner
from autotune.tuning.scene import Scene
from autotune.tuning.storing.study import TuningStudy

SEEDS = (0, 1, 2)
"""Of the baseline, and at most of a trial during the search."""
MOST_SEEDS = 6
"""Of what leads the search, or is about to be the answer."""
PROBE_SECONDS = 6.0
"""Of the baseline's training. Shorter probes judge the first updates only, in which larger batches
always look worse."""
_FEWEST_BASELINE_STEPS = 30
_MOST_SECONDS = 60.0
SEED_SECONDS = "probe_seconds"
"""Of the study's notes: what a seed of the baseline takes."""
_NOTE = "qualities"


def probe_samples(scene: Scene, samples_per_second: float) -> int:
    """Samples that every probe trains on: some seconds of the baseline's training.

    A multiple of all batch sizes where that is not much more, so that all take whole batches only;
    else the last batch of some is smaller.
    """
    baseline_batch = int(scene.baseline["batch_size"] or 1)
    enough = _FEWEST_BASELINE_STEPS * baseline_batch
    affordable = math.ceil(_MOST_SECONDS * samples_per_second)
    wanted = max(math.ceil(PROBE_SECONDS * samples_per_second), min(enough, affordable))
    sizes = [size for size in scene.space.domains["batch_size"] if isinstance(size, int)]
    fitting = [unit for unit in (math.lcm(*sizes), max(sizes)) if unit <= wanted]
    unit = fitting[0] if fitting else baseline_batch
    return math.ceil(wanted / unit) * unit


Evidence = Literal["exact", "gate", "probe", "gate and probe"]
"""What tells that a configuration trains as well: being the same training, a gate, a probe."""


@dataclass(frozen=True, slots=True)
class AccuracyVerdict:
    """What is known of a configuration's accuracy."""

    decision: Decision
    """Only what is accepted may be the answer."""
    margin: float
    """For the search: at or below 0 where nothing speaks against the configuration so far."""
    qualities: tuple[float, ...]
    """One per seed; none where the gate already rejects."""
    reason: str
    """Why it is not accepted; empty where it is."""


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
        qualities = self._probed(self.scene.baseline, len(SEEDS))
        if isinstance(qualities, OutOfMemory | TimedOut):
            return f"accuracy probe: {describe(qualities)}"
        if not isinstance(qualities, tuple):
            raise WorkloadError(
                f"accuracy cannot be measured with your own settings: {describe(qualities)}"
            )
        options = self.scene.options
        metric, higher_is_better = self.scene.metric
        return AccuracyRule(
            metric=metric,
            higher_is_better=higher_is_better,
            baseline=qualities,
            tolerance=options.accuracy_tolerance.absolute(qualities),
            minimum=options.min_accuracy,
        )

    def verdict(
        self, rule: AccuracyRule, config: TrainingConfig, most_seeds: int, least_seeds: int = 1
    ) -> AccuracyVerdict | Failure:
        """Gate and probe `config`, one seed after the other until they decide.

        Nothing is accepted on fewer than `least_seeds`; rejected it may be on the first. Seeds
        that are known already all count.
        """
        fault = self._gates.fault(config)
        if isinstance(fault, GateFault):
            return AccuracyVerdict("reject", fault.margin, (), fault.reason)
        if fault is not None:
            return fault
        if self.trained_as(config).quality_key() == self.scene.baseline.quality_key():
            return AccuracyVerdict("accept", rule.margin(rule.baseline), rule.baseline, "")
        known = max(1, len(self._known(config)))
        for seeds in range(known, max(known, most_seeds) + 1):
            found = self._after(rule, config, seeds)
            if not isinstance(found, AccuracyVerdict) or found.decision == "reject":
                break
            if found.decision == "accept" and seeds >= least_seeds:
                break
        return found

    def proof(self, rule: AccuracyRule, config: TrainingConfig) -> AccuracyVerdict | Failure:
        """The verdict on what leads or is about to be the answer: on as many seeds as it takes.

        What 6 do not decide no search will: it is held back by what they do not rule out.
        """
        return self.verdict(rule, config, MOST_SEEDS, least_seeds=len(SEEDS))

    def speaks_against(self, rule: AccuracyRule, config: TrainingConfig) -> bool:
        """Whether the seeds that are known do, so that no proof can be hoped for; runs nothing."""
        seeds = len(self._known(config))
        found = self._after(rule, config, seeds) if seeds else None
        return isinstance(found, AccuracyVerdict) and found.margin > 0

    def known_seeds(self, config: TrainingConfig) -> int:
        """Of how many seeds the quality is known."""
        return len(self._known(config))

    def rule_over(self, rule: AccuracyRule, seeds: int) -> AccuracyRule | Failure:
        """The rule with the baseline's qualities for at least so many seeds."""
        baseline = self._probed(self.scene.baseline, max(seeds, len(SEEDS)))
        return rule.over(baseline) if isinstance(baseline, tuple) else baseline

    def evidence(self, config: TrainingConfig) -> Evidence:
        """What the verdict on `config` stands on."""
        gated = self._gates.needed(config)
        probed = self.trained_as(config).quality_key() != self.scene.baseline.quality_key()
        if gated:
            return "gate and probe" if probed else "gate"
        return "probe" if probed else "exact"

    def gated(self, config: TrainingConfig) -> Gated | None:
        """What the gate measured for `config`, where it has one."""
        found = self._gates.gated(config)
        return found if isinstance(found, Gated) else None

    @property
    def _gates(self) -> Gates:
        return GateKeeper(self.scene, self.runner, self.study)

    def _after(
        self, rule: AccuracyRule, config: TrainingConfig, seeds: int
    ) -> AccuracyVerdict | Failure:
        """What the first `seeds` seeds tell."""
        qualities = self._probed(config, seeds)
        if not isinstance(qualities, tuple):
            return qualities
        wider = self.rule_over(rule, seeds)
        if not isinstance(wider, AccuracyRule):
            return wider
        decision, margin = wider.decision(qualities), wider.margin(qualities)
        reason = _reason(decision, margin, seeds)
        if decision == "undecided" and seeds == MOST_SEEDS:
            margin = wider.margin_in_doubt(qualities)
        return AccuracyVerdict(decision, margin, qualities, reason)

    def trained_as(self, config: TrainingConfig) -> TrainingConfig:
        """What is trained in a probe of `config`: what the gate is enough for is the baseline's."""
        reordering = (name for name in NUMERICS if name not in PRECISION)
        return config.replace(**{name: self.scene.baseline[name] for name in reordering})

    def _probed(self, config: TrainingConfig, seeds: int) -> tuple[float, ...] | Failure:
        """The quality for the first `seeds` seeds; what is known is not probed again."""
        trained, have = self.trained_as(config), self._known(config)
        key = trained.quality_key()
        if len(have) >= seeds:
            return have[:seeds]
        task = Probe(self.samples, tuple(range(len(have), seeds)))
        outcome = self.runner.run(self.scene.job(task, trained), self._folder(key, len(have)))
        if isinstance(outcome, Probed):
            have += outcome.qualities
            if len(have) > len(self._known(config)):  # another device may have probed more
                self.study.note_entry(_NOTE, key, list(have))
            if key == self.scene.baseline.quality_key():
                seconds = outcome.seconds / len(outcome.qualities)
                self.study.note(SEED_SECONDS, round(seconds, 3))
            return have
        return as_failure(outcome)

    def _known(self, config: TrainingConfig) -> tuple[float, ...]:
        """The qualities of the seeds that were probed so far."""
        key = self.trained_as(config).quality_key()
        return tuple(self.study.noted(_NOTE, {}).get(key, ()))

    def _folder(self, key: str, first_seed: int) -> Path:
        name = key.replace(",", "-").replace("=", "_")
        return self.scene.options.folder / "trials" / "accuracy" / f"{name}-seed{first_seed}"


def _reason(decision: Decision, margin: float, seeds: int) -> str:
    if decision == "accept":
        return ""
    over = f"over {seeds} seed{'s' if seeds > 1 else ''}"
    if margin > 0:
        return f"accuracy: {100 * margin:.3g} % worse than allowed {over}"
    return f"accuracy: not proven to be within what is allowed {over}"
