"""Accuracy of a configuration relative to the baseline: a numerical check, then accuracy probes.

The knobs that differ from the baseline decide which evidence is needed. Exact knobs need none.
Knobs that change rounding need the check of `autotune.accuracy.numerics_verdict`. A lower precision
or another batch size also needs a probe: training on as many samples as the baseline, seed by seed.
The same effective batch in other parts needs a probe if its gradients differ beyond rounding.
Checks and probes run once. Configurations that a probe cannot distinguish share their probes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from autotune.accuracy.numerics_verdict import FirstLossChecker, NumericsChecker, NumericsFault
from autotune.configuration.constraints import AccuracyRule
from autotune.configuration.evidence import UNCHANGED, EvidenceKind
from autotune.configuration.job import Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.process.common.trial_folder import EVALUATION
from autotune.process.runner import Runner
from autotune.study.study import TuningStudy
from autotune.values.errors import UsageError, WorkloadError
from autotune.values.outcome import Failure, Lost, OutOfMemory, Probed, as_failure, describe
from autotune.values.statistics import SEED_COUNTS, Decision, Part, Reached, ratio_of
from autotune.values.text import as_file_name

_SECONDS = 6.0
"""Seconds that the baseline trains in a probe.

Shorter probes see only the first updates, in which larger batches always look worse.
"""
_FEWEST_SECONDS = 3.0
# Largest share of a short time budget for one seed: a result takes six seeds or more.
_SHARE = 1 / 40
_FEWEST_BASELINE_STEPS = 30
_MOST_SECONDS = 60.0
# Largest share of a time budget for one seed of a script whose loss falls late.
_LATE_SHARE = 1 / 15
PATIENCE = 2
"""Times the usual samples after which a training that was to reach a loss is given up."""
_LEAST_MARGIN = 0.01
# Share of the tolerance by which the seeds so far, mostly one, may differ for three to be probably
# enough. Three accept where the deviation is below a third of it, if the mean is the same.
_NEAR = 1 / 4
# Least share of the baseline's steps that another learning rate, or the like, may take to a loss.
_FEWEST_STEPS = 1 / 4


def probe_seconds(context: SearchContext) -> float:
    """Return the approximate seconds that the baseline trains in a probe."""
    until = _fell_after(context) / (context.traits.seen.samples_per_second or math.inf)
    return max(_usual_seconds(context), min(until, _most_late(context)))


def _usual_seconds(context: SearchContext) -> float:
    if context.time_budget_seconds is None:
        return _SECONDS
    return min(_SECONDS, max(_FEWEST_SECONDS, _SHARE * context.time_budget_seconds))


def probe_samples(context: SearchContext, samples_per_second: float) -> int:
    """Return the samples that every probe trains on: some seconds of the baseline's training.

    A script trains until its loss had fallen when it was observed, if the time budget has room.
    The number is a multiple of all effective batches if that fits, or else of the largest one or
    of the baseline's. Those that do not divide it end with a smaller batch.
    """
    baseline_batch = context.baseline.effective_batch
    enough = _FEWEST_BASELINE_STEPS * baseline_batch
    affordable = math.ceil(_MOST_SECONDS * samples_per_second)
    wanted = max(
        math.ceil(_usual_seconds(context) * samples_per_second),
        min(enough, affordable),
        min(_fell_after(context), math.ceil(_most_late(context) * samples_per_second)),
    )
    sizes = context.space.effective_batches
    fitting = [unit for unit in (math.lcm(*sizes), max(sizes)) if unit <= wanted]
    unit = fitting[0] if fitting else baseline_batch
    return math.ceil(wanted / unit) * unit


def _most_late(context: SearchContext) -> float:
    """Return the most seconds of a seed whose loss falls late."""
    return min(_MOST_SECONDS, _LATE_SHARE * (context.time_budget_seconds or math.inf))


def _fell_after(context: SearchContext) -> int:
    """Return the samples after which the loss of an observed script had fallen; 0 if unknown."""
    loss = context.traits.seen.loss
    return (loss and loss.fell_after) or 0


SEEDS = tuple(range(SEED_COUNTS[0]))
"""Seeds of the baseline; a trial that is not the incumbent gets at most these."""
INCUMBENT_SEEDS = SEED_COUNTS[1]
"""Most seeds for an incumbent, while trials run."""


def why_unmeasured(failure: Failure) -> str:
    """Return what failed when accuracy was probed, with advice on an evaluation out of memory."""
    advice = "evaluate fewer samples at a time in evaluate(model, device), or raise the limit"
    is_evaluated = isinstance(failure, OutOfMemory) and failure.during == EVALUATION
    return f"{describe(failure)}; {advice}" if is_evaluated else describe(failure)


def own_accuracy_fails(failure: Failure) -> WorkloadError:
    """Return the error for probes of the baseline that fail."""
    why = why_unmeasured(failure)
    return WorkloadError(f"quality cannot be measured with your own settings: {why}")


def probe_task(context: SearchContext, samples: int, seeds: tuple[int, ...]) -> Probe:
    """Return the probe task; the held-out loss is evaluated in batches of the baseline's size."""
    batch_size = int(context.baseline["batch_size"] or 1)
    most = PATIENCE * samples if context.objective.to_loss else 0
    return Probe(samples, seeds, batch_size, loss=context.judge.loss, most=most)


@dataclass(frozen=True, slots=True)
class AccuracyVerdict:
    """Verdict on a configuration's accuracy after the seeds so far."""

    decision: Decision
    """Decision after the seeds so far; only an accepted configuration may be the result."""
    margin: float
    """Constraint of the search: above 0 if the seeds so far show a loss beyond the tolerance."""
    qualities: tuple[float, ...]
    """Quality per seed; empty if the numerical check already rejects."""
    reason: str
    """Reason why the configuration is not accepted; empty if it is."""
    seeds_wanted: int = 0
    """Number of seeds, these included, after which the next decision may follow."""

    @property
    def is_final(self) -> bool:
        """True if further seeds are not expected to decide otherwise."""
        return self.decision != "undecided" or self.seeds_wanted == len(self.qualities) > 0


@dataclass(frozen=True)
class AccuracyProber:
    """Runs accuracy probes, once each, and keeps their results in the study."""

    context: SearchContext
    runner: Runner
    study: TuningStudy

    @property
    def samples(self) -> int:
        """Samples that each probe trains on, as the study noted them; 0 without a quality."""
        if not self.context.judge.has_quality:
            return 0
        return self.context.options.accuracy.samples or self.study.notes.probe_samples or 0

    @property
    def most_samples(self) -> int:
        """Samples after which a probe ends, or is given up if it was to reach a loss."""
        return self.samples * (PATIENCE if self.context.objective.to_loss else 1)

    @property
    def seed_seconds(self) -> float:
        """Seconds of an accuracy seed of the baseline, or an estimate before the first."""
        known = self.study.notes.seed_seconds
        return probe_seconds(self.context) if known is None else known

    @property
    def rule(self) -> AccuracyRule:
        """The accuracy rule from the known seeds of the baseline; see `probe`.

        Without a quality, training may not change.
        """
        if not self.context.judge.has_quality:
            return AccuracyRule(UNCHANGED, True, (0.0,), tolerance=0.0, minimum=None)
        return self._rule_of(self.known(self.context.baseline))

    def _rule_of(self, baseline: tuple[float, ...]) -> AccuracyRule:
        """Return the accuracy rule for these qualities of the baseline, one per seed."""
        options, untrained = self.context.options.accuracy, self.study.notes.untrained
        return AccuracyRule(
            metric=self.context.judge.by,
            higher_is_better=self.context.judge.higher_is_better,
            baseline=baseline,
            tolerance=options.tolerance.absolute(baseline[: len(SEEDS)], untrained),
            minimum=options.minimum,
        )

    @property
    def can_accept(self) -> bool:
        """False if no seeds could show that another training is as good: nothing may be lost.

        This happens if the tolerance is a share of what training gains, and a probe gains nothing.
        """
        return not self.context.judge.has_quality or self.rule.tolerance > 0

    def verdict(
        self, config: TrainingConfig, most_seeds: int, least_seeds: int = 1
    ) -> AccuracyVerdict | Failure:
        """Check numerics and probe `config`, one seed after the other until they decide.

        Args:
            config: the configuration.
            most_seeds: number of seeds after which to stop undecided, unless further ones decide
                nothing anyway; all known seeds count.
            least_seeds: fewest seeds to accept `config`; one may be enough to reject it.

        Raises:
            WorkloadError: the baseline's own probes fail.
            UsageError: its loss does not fall; see `_check_falls`.
        """
        fault = self.numerics.fault(config)
        if isinstance(fault, NumericsFault):
            return AccuracyVerdict("reject", fault.margin, (), fault.reason)
        if fault is not None:
            return fault
        if isinstance(split := self.numerics.split(config), Lost):
            return split
        if not self.needs_probe(config):
            own = self.rule.baseline
            return AccuracyVerdict("accept", self.rule.margin(own), own, "")
        known = max(1, len(self.known(config)))
        for seeds in range(known, max(known, most_seeds) + 1):
            found = self._after(config, seeds)
            if not isinstance(found, AccuracyVerdict) or found.decision == "reject":
                break
            if found.is_final and seeds >= least_seeds:
                break
        return found

    def needs_probe(self, config: TrainingConfig) -> bool:
        """Return True if `config` may train to another quality than the baseline."""
        return self.training_of(config) != self._own

    def unknown(self, configs: Sequence[TrainingConfig]) -> list[bool]:
        """Return for each configuration whether no seed of its training is known.

        Settings that a check of a script may show to round count as known.
        """
        known = {self._own, *self.study.notes.qualities}
        return [one.quality_key() not in known for one in self.numerics.expected(configs)]

    def speaks_against(self, config: TrainingConfig) -> bool:
        """Return whether the known seeds show a loss beyond the tolerance; runs nothing.

        It is False while fewer than `SEEDS` of the baseline are known, and for trainings equal to
        the baseline's, because only chance moves their seeds.
        """
        if not self.needs_probe(config):
            return False
        qualities = self.known(config)
        enough = max(len(qualities), len(SEEDS))
        if not qualities or len(self.known(self.context.baseline)) < enough:
            return False
        found = self._after(config, len(qualities))
        return isinstance(found, AccuracyVerdict) and found.margin > 0

    def known(self, config: TrainingConfig) -> tuple[float, ...]:
        """Return the quality of each seed that was probed so far."""
        return self._known(self.training_of(config))

    def training_of(self, config: TrainingConfig) -> str:
        """Return the text that trainings equivalent to that of `config` share, as known now."""
        return self.numerics.trained_as(config).quality_key()

    def decision_so_far(self, training: str) -> Decision:
        """Return the decision on a training from its known seeds and the baseline's; run nothing.

        It is undecided on fewer seeds than `SEEDS`. `training` is from `training_of`.
        """
        own, theirs = self._known(self._own), self._known(training)
        if training == self._own:
            return "accept"
        if self.misses(training):
            return "reject"
        if not len(SEEDS) <= len(theirs) <= len(own):
            return "undecided"
        return self._rule_of(own).decision(theirs)

    @property
    def loss_to_reach(self) -> float | None:
        """The training loss that is the objective; None if another one is, or if not known yet."""
        asked = self.context.objective.loss
        return self.study.notes.loss_to_reach if asked is None else asked

    def samples_to_loss(self, config: TrainingConfig) -> float:
        """Return the samples that `config` takes to the loss, on the baseline's first seed.

        Without seeds it takes as few as may be: no more steps than the baseline, or with other
        settings of the user's own, such as a learning rate, a part of them.
        """
        own = self.study.notes.needed.get(self._own, (1.0,))[0]
        if seeds := self.seeds_to_loss(config):
            return own / ratio_of(seeds)
        if not self.needs_probe(config):
            return own
        part = min(1.0, config.effective_batch / self.context.baseline.effective_batch)
        return own * part * (1 if config.own == self.context.baseline.own else _FEWEST_STEPS)

    def seeds_to_loss(self, config: TrainingConfig) -> tuple[Part, ...]:
        """Return the samples to the loss of the baseline and of `config`, a pair for each seed.

        Empty if it trains as the baseline does, or if no seed is known. A seed with which the
        baseline was given up does not tell its samples, and is left out.
        """
        needed = self.study.notes.needed
        found = needed.get(self.training_of(config), ()) if self.needs_probe(config) else ()
        pairs = zip(needed.get(self._own, ()), found, strict=False)
        return tuple(pair for pair in pairs if pair[0] < self.most_samples)

    def misses(self, training: str) -> bool:
        """Return True if a training was given up before it reached the loss."""
        needed = self.study.notes.needed.get(training, ())
        return any(samples >= self.most_samples for samples in needed)

    def missing_seconds(self, training: str, least: int = 0) -> float:
        """Estimate the seconds of the seeds that it and the baseline lack until it may be decided.

        Args:
            training: text from `training_of`; "" for one to come, without known seeds.
            least: the fewest seeds of each to count, unless the training is decided.
        """
        own, theirs = self._known(self._own), self._known(training)
        decision = self.decision_so_far(training)
        if self.context.objective.to_loss and training != self._own and decision != "reject":
            least = max(least, INCUMBENT_SEEDS)  # all of which a claim needs
        elif decision != "undecided":
            return 0.0
        if not len(SEEDS) <= len(theirs) <= len(own):
            count = next(seeds for seeds in SEED_COUNTS if seeds >= len(theirs))
        else:
            count = max(self._rule_of(own).seeds_wanted(theirs), least * (decision == "accept"))
            if count <= len(theirs):
                return 0.0
        lacking, lacking_own = (max(0, max(count, least) - len(known)) for known in (theirs, own))
        return self.seed_seconds * (lacking_own + lacking * self._longer(training))

    def _longer(self, training: str) -> float:
        """Return how many times the baseline's samples a seed of a training takes.

        Seeds to a loss take as many more as the known ones did; without any, twice as many.
        """
        needed = self.study.notes.needed
        if training == self._own or not self.context.objective.to_loss:
            return 1.0
        if training not in needed or self._own not in needed:
            return PATIENCE
        return fmean(needed[training]) / fmean(needed[self._own])

    def seeds_to_expect(self, training: str) -> int:
        """Return the seeds after which a training that is as good is probably accepted.

        Those are the fewest if the seeds so far differ by a small part of the tolerance.
        """
        own, theirs = self._known(self._own), self._known(training)
        both = min(len(own), len(theirs))
        rule = self._rule_of(own[:both]) if both else None
        is_near = rule and max(map(abs, rule.losses(theirs[:both]))) <= _NEAR * rule.tolerance
        return len(SEEDS) if is_near else INCUMBENT_SEEDS

    def _known(self, training: str) -> tuple[float, ...]:
        return tuple(self.study.notes.qualities.get(training, ()))

    @property
    def _own(self) -> str:
        """The text of the baseline's training."""
        return self.context.baseline.quality_key()

    def evidence(self, config: TrainingConfig) -> EvidenceKind:
        """Return the kind of evidence that the verdict on `config` rests on."""
        gated = self.numerics.needed(config) or self.numerics.sums_alike(config)
        probed = self.needs_probe(config)
        if gated:
            return "numerical check and short trainings" if probed else "numerical check"
        return "short trainings" if probed else "exact"

    @property
    def numerics(self) -> NumericsChecker:
        """Runs the numerical checks of this study."""
        compares = self.context.traits.compares_first_steps
        kind = FirstLossChecker if compares else NumericsChecker
        return kind(self.context, self.runner, self.study)

    def _after(self, config: TrainingConfig, seeds: int) -> AccuracyVerdict | Failure:
        """Return the verdict after the first `seeds` seeds, of which it runs missing ones.

        Raises:
            WorkloadError: further seeds of the baseline fail, which is no configuration's fault.
        """
        if (failure := self.probe(config, seeds)) is not None:
            return failure
        failure = self.probe(self.context.baseline, seeds)
        if isinstance(failure, Lost):
            return failure
        if failure is not None:
            raise own_accuracy_fails(failure)
        rule, qualities = self.rule, self.known(config)[:seeds]
        if self.misses(self.training_of(config)):
            margin = max(_LEAST_MARGIN, rule.margin(qualities))
            loss, within = self.loss_to_reach, f"{self.most_samples} {self.context.unit}"
            why = f"training loss {loss:.4g} not reached in {within}"
            return AccuracyVerdict("reject", margin, qualities, why)
        decision, margin = rule.decision(qualities), rule.margin(qualities)
        reason = "" if decision == "accept" else rule.objection(qualities)
        wanted = rule.seeds_wanted(qualities)
        if decision == "undecided" and wanted == seeds:
            margin = rule.margin_in_doubt(qualities)
        return AccuracyVerdict(decision, margin, qualities, reason, wanted)

    def probe(self, config: TrainingConfig, seeds: int) -> Failure | None:
        """Train the first `seeds` seeds as far as they are not known; return what failed, if any.

        Side effect: notes their qualities in the study.
        """
        trained = self.numerics.trained_as(config)
        key = trained.quality_key()
        have = self._known(key)
        if len(have) >= seeds or not self.context.judge.has_quality:
            return None
        is_first = self.context.objective.to_loss and self.loss_to_reach is None
        until = len(have) + 1 if self.context.judge.needs_whole_runs or is_first else seeds
        # A metric that a script prints is not available before its training.
        is_loss = self.context.judge.by in ("held_out_loss", "training_loss")
        gains = is_loss and self.context.options.accuracy.tolerance.relative
        task = replace(
            probe_task(self.context, self.samples, tuple(range(len(have), until))),
            untrained=gains and not have and key == self._own,
            reach=self.loss_to_reach,
        )
        job, start = self.context.job(task, trained), time.monotonic()
        name = f"{as_file_name(key)}-seed{len(have)}"
        folder = self.context.options.study.folder / "trials" / "accuracy" / name
        outcome = self.runner.run(job, folder)
        if not isinstance(outcome, Probed):
            return as_failure(outcome)
        if outcome.untrained is not None:
            self.study.notes.untrained = outcome.untrained
        have += outcome.qualities
        if outcome.reached:
            self._check_falls(key, outcome.reached[0], task.seeds[0])
        if len(have) > len(self._known(key)):  # another device may have probed more
            if outcome.reached:
                if self.loss_to_reach is None:
                    self.study.notes.loss_to_reach = outcome.reached[0][1]
                needed, samples = self.study.notes.needed, [one[0] for one in outcome.reached]
                needed[key] = (*needed.get(key, ())[: task.seeds[0]], *samples)
            self.study.notes.qualities[key] = have  # the last one: a seed with it is known
        if key == self._own:
            taken = max(outcome.seconds, time.monotonic() - start)
            self.study.notes.seed_seconds = round(taken / len(outcome.qualities), 3)
        return self.probe(config, seeds)

    def _check_falls(self, key: str, reached: Reached, seed: int) -> None:
        """Check that it is no chance when the baseline first passes the loss that all are to reach.

        Raises:
            UsageError: it is.
        """
        if key == self._own and not seed and reached[0] < self.most_samples and not reached[2]:
            raise UsageError(
                f"--objective time-to-loss: the training loss of your settings, {reached[1]:.4g}, "
                f"barely falls in the second half of {self.samples} {self.context.unit}, so that "
                "chance decides when it is reached. Give a higher loss (time-to-loss=VALUE), "
                "another --accuracy-samples, or leave the option out."
            )
