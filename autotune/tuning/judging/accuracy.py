"""Whether a configuration trains as well as the baseline: a gate, then probes, each run once.

What differs from the baseline decides the evidence. Knobs that are exact need none. Knobs of
numerics pass the gate of `autotune.tuning.judging.gates`. Shorter numbers and another batch size
are probed as well: trained on as many samples as the baseline was, seed by seed. Two configurations
that agree in everything that a probe tells share one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    Lost,
    OutOfMemory,
    Probed,
    TimedOut,
    as_failure,
    describe,
)
from autotune.tuning.judging.gates import NUMERICS, PRECISION, GateFault, GateKeeper, Gates
from autotune.tuning.judging.seeds import MOST_SEEDS, SEEDS, decision_so_far, rule_from
from autotune.tuning.running.runner import Runner
from autotune.tuning.scene import Scene
from autotune.tuning.storing.finished import MARGINS, QUALITIES
from autotune.tuning.storing.study import TuningStudy

_SECONDS = 6.0
"""Of the baseline's training. Shorter probes judge the first updates only, in which larger batches
always look worse."""
_FEWEST_SECONDS = 3.0
# Of the time budget, at most, where that is short: an answer takes six seeds or more.
_SHARE = 1 / 40
_FEWEST_BASELINE_STEPS = 30
_MOST_SECONDS = 60.0
SEED_SECONDS = "probe_seconds"
"""Of the study's notes: what a seed of the baseline takes."""


def probe_seconds(scene: Scene) -> float:
    """About what the baseline's training takes in a probe."""
    if scene.time_budget_seconds is None:
        return _SECONDS
    return min(_SECONDS, max(_FEWEST_SECONDS, _SHARE * scene.time_budget_seconds))


def probe_samples(scene: Scene, samples_per_second: float) -> int:
    """Samples that every probe trains on: some seconds of the baseline's training.

    A multiple of all batch sizes where that is not much more, so that all take whole batches only;
    else the last batch of some is smaller.
    """
    baseline_batch = int(scene.baseline["batch_size"] or 1)
    enough = _FEWEST_BASELINE_STEPS * baseline_batch
    affordable = math.ceil(_MOST_SECONDS * samples_per_second)
    wanted = max(math.ceil(probe_seconds(scene) * samples_per_second), min(enough, affordable))
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

    def rule(self, seeds: int = 1) -> AccuracyRule | Failure:
        """What the baseline reaches, over so many seeds or as many as are known.

        Until `SEEDS` are, nothing is known of their spread, which may allow for more.
        """
        own = self.scene.baseline
        qualities = self._probed(own, max(seeds, self.known_seeds(own)))
        if not isinstance(qualities, tuple):
            return qualities
        rule = rule_from(self.scene, qualities)
        self._note_margin(own, rule.margin(qualities))
        return rule

    def verdict(
        self, config: TrainingConfig, most_seeds: int, least_seeds: int = 1
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
        if not self.needs_probe(config):
            rule = self.rule()
            if not isinstance(rule, AccuracyRule):
                return rule
            return AccuracyVerdict("accept", rule.margin(rule.baseline), rule.baseline, "")
        known = max(1, len(self._known(config)))
        for seeds in range(known, max(known, most_seeds) + 1):
            found = self._after(config, seeds)
            if not isinstance(found, AccuracyVerdict) or found.decision == "reject":
                break
            if found.decision == "accept" and seeds >= least_seeds:
                break
        return found

    def needs_probe(self, config: TrainingConfig) -> bool:
        """Whether `config` may train to another quality than the baseline, gate or no gate."""
        return self.trained_as(config).quality_key() != self.scene.baseline.quality_key()

    def unknown(self, configs: Sequence[TrainingConfig]) -> list[bool]:
        """Of which configurations the accuracy is not known after any seed."""
        known = {self.scene.baseline.quality_key(), *self.study.noted(QUALITIES, {})}
        return [self.trained_as(config).quality_key() not in known for config in configs]

    def proof(self, config: TrainingConfig) -> AccuracyVerdict | Failure:
        """The verdict on what leads or is about to be the answer: on as many seeds as it takes.

        What 6 do not decide no search will: it is held back by what they do not rule out.
        """
        return self.verdict(config, MOST_SEEDS, least_seeds=len(SEEDS))

    def speaks_against(self, config: TrainingConfig) -> bool:
        """Whether the seeds that are known do, so that no proof can be hoped for; runs nothing."""
        qualities = self._known(config)
        enough = max(len(qualities), len(SEEDS))
        if not qualities or self.known_seeds(self.scene.baseline) < enough:
            return False  # what speaks against one is judged by so many seeds of the baseline
        found = self._after(config, len(qualities))
        return isinstance(found, AccuracyVerdict) and found.margin > 0

    def is_proven(self, config: TrainingConfig) -> bool:
        """Whether no further seed is needed to accept `config`; runs nothing."""
        trained_as = self.trained_as(config).quality_key()
        return decision_so_far(self.scene, self.study, trained_as) == "accept"

    def known_seeds(self, config: TrainingConfig) -> int:
        """Of how many seeds the quality is known."""
        return len(self._known(config))

    def evidence(self, config: TrainingConfig) -> Evidence:
        """What the verdict on `config` stands on."""
        gated = self._gates.needed(config)
        probed = self.needs_probe(config)
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

    def _after(self, config: TrainingConfig, seeds: int) -> AccuracyVerdict | Failure:
        """What the first `seeds` seeds tell.

        Raises:
            WorkloadError: further seeds of the baseline fail, which is no configuration's fault.
        """
        qualities = self._probed(config, seeds)
        if not isinstance(qualities, tuple):
            return qualities
        rule = self.rule(seeds)
        if isinstance(rule, AccuracyRule) and rule.margin(qualities) > 0:
            # By how much the baseline differs from itself is known before anything is held back.
            rule = self.rule(max(seeds, len(SEEDS)))
        if isinstance(rule, Lost):
            return rule
        if not isinstance(rule, AccuracyRule):
            raise WorkloadError(own_accuracy_fails(rule))
        decision, margin = rule.decision(qualities), rule.margin(qualities)
        reason = _reason(decision, margin, seeds)
        if decision == "undecided" and seeds == MOST_SEEDS:
            margin = rule.margin_in_doubt(qualities)
        self._note_margin(config, margin)
        return AccuracyVerdict(decision, margin, qualities, reason)

    def _note_margin(self, config: TrainingConfig, margin: float) -> None:
        key, known = self.trained_as(config).quality_key(), self.study.noted(MARGINS, {})
        if known.get(key) != margin:
            self.study.note_entry(MARGINS, key, margin)

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
        outcome = self.runner.run(
            self.scene.job(task, trained), self._folder(key, f"seed{len(have)}")
        )
        if isinstance(outcome, Probed):
            have += outcome.qualities
            if len(have) > len(self._known(config)):  # another device may have probed more
                self.study.note_entry(QUALITIES, key, list(have))
            if key == self.scene.baseline.quality_key():
                seconds = outcome.seconds / len(outcome.qualities)
                self.study.note(SEED_SECONDS, round(seconds, 3))
            return have
        return as_failure(outcome)

    def _known(self, config: TrainingConfig) -> tuple[float, ...]:
        """The qualities of the seeds that were probed so far."""
        key = self.trained_as(config).quality_key()
        return tuple(self.study.noted(QUALITIES, {}).get(key, ()))

    def _folder(self, key: str, what: str) -> Path:
        name = key.replace(",", "-").replace("=", "_")
        return self.scene.options.folder / "trials" / "accuracy" / f"{name}-{what}"


def no_reference(failure: Failure) -> str:
    """Why a baseline whose probe fails so is no feasible reference.

    Raises:
        WorkloadError: it fails for another reason than memory or time.
    """
    if isinstance(failure, OutOfMemory | TimedOut):
        return f"accuracy probe: {describe(failure)}"
    raise WorkloadError(own_accuracy_fails(failure))


def own_accuracy_fails(failure: Failure) -> str:
    """What is said where the baseline's probes fail."""
    return f"accuracy cannot be measured with your own settings: {describe(failure)}"


def _reason(decision: Decision, margin: float, seeds: int) -> str:
    if decision == "accept":
        return ""
    over = f"over {seeds} seed{'s' if seeds > 1 else ''}"
    if margin > 0:
        return f"accuracy: {100 * margin:.3g} % worse than allowed {over}"
    return f"accuracy: not proven to be within what is allowed {over}"
