"""Accuracy of a training script under other settings.

Settings that preserve results need no evidence. For all others, the first steps are compared with
the unchanged script's. Unless their gradients agree, the quality of a training follows: its loss,
or the metric that it prints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from autotune.accuracy import numerics_verdict
from autotune.accuracy.accuracy_verdict import AccuracyProber
from autotune.configuration.constraints import UNNOTICED
from autotune.configuration.job import FIRST_SEED, TakeFirstSteps
from autotune.configuration.script import is_harmless
from autotune.configuration.training_config import BATCH_KNOBS, PRECISION, TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Value
from autotune.values.outcome import (
    FIRST_STEPS,
    Failure,
    FirstLosses,
    Gated,
    Lost,
    ObservedLoss,
    TrialOutcome,
    as_failure,
)

_ROUNDING = {True: 2.0**-7, False: 2.0**-10}
"""Epsilon of the shortest number format: of bfloat16, and else of TF32 and float16."""
_UNTOUCHED = "untouched"
_UNJUDGED = (
    "accuracy: the gradients differ from the unchanged script's by {off:.3g} %, and there is "
    "no quality metric to compare by"
)
_UNTOLD = (
    "accuracy: the gradients of the first steps do not show whether it trains as well, and there "
    "is no quality metric to compare by"
)
_WORDS = {
    "loss": "the first losses differ from the unchanged script's",
    "reach": "how far the first steps move the weights differs from the unchanged script's",
}
# Knobs that take effect in the first step, such as those that replace the script's own values. All
# other settings of a model take effect by the third.
_AT_ONCE = ("channels_last", "optimizer_impl", "sdpa_backend")
_OPTIMIZER = "optimizer_impl"
_NUMERICS = tuple(name for name in numerics_verdict.NUMERICS if not is_harmless(KNOBS[name]))


@dataclass(frozen=True)
class FirstLossChecker(numerics_verdict.NumericsChecker):
    """Compares the first steps of a script with the untouched script's, with equal loaders.

    The seed is the same, so that both train on the same samples from the same weights. Random
    numbers and rounding change the losses as well. Another untouched run shows by how much: it
    continues from rounded weights with other random numbers, also in scripts that set their seed.
    A loss hardly shows whether small steps are taken at all; the distance of the weights does.
    Gradients at equal weights show which settings only round, and so need no seeds.
    """

    measured = ("loss_error",)

    def needed(self, config: TrainingConfig) -> bool:
        """Return whether the losses of `config` were or will be compared."""
        known = self.study.notes.numerics_checks.get(_UNTOUCHED)
        return super().needed(config) and (known is None or isinstance(known, FirstLosses))

    def _compared(self, config: TrainingConfig) -> tuple[TrainingConfig, TrainingConfig]:
        reference = self.context.baseline
        return reference.replace(**_numerics_of(config)), reference

    def _pairs(self, config: TrainingConfig) -> list[tuple[TrainingConfig, TrainingConfig]]:
        tested, reference = self._compared(config)
        parts = [tested] if self._is_lower(tested) else [tested, *self._parts(config)]
        return [(it, reference) for it in dict.fromkeys(parts) if it != reference]

    def _parts(self, config: TrainingConfig) -> tuple[TrainingConfig, TrainingConfig]:
        """Return `config` reduced to what takes effect at once, and to the optimizer's kernels.

        Rounding in the first step moves the weights apart, and Adam turns it into whole steps. So
        what takes effect later is compared with a run that had the same first steps. And a first
        update shows the effect of the optimizer's kernels only if its gradients are the same.
        """
        replaced = [name for name in _NUMERICS if name in self.context.traits.seen.own]
        at_once = (*_AT_ONCE, *replaced)
        return self._reduced(config, at_once), self._reduced(config, (_OPTIMIZER,))

    def _reduced(self, config: TrainingConfig, names: Sequence[str]) -> TrainingConfig:
        return self.context.baseline.replace(**{name: config[name] for name in names})

    def _is_lower(self, tested: TrainingConfig) -> bool:
        return any(tested[name] != self.context.baseline[name] for name in PRECISION)

    def gated(self, config: TrainingConfig) -> Gated | Failure | None:
        """Return the measured errors of all numerics of `config`; None if no check is needed."""
        tested, reference = self._compared(config)
        return None if tested == reference else self._found(tested, reference)

    def _found(self, tested: TrainingConfig, reference: TrainingConfig) -> Gated | Failure | None:
        """Return by how much the losses differ; None if they cannot be read."""
        own = self._untouched(0.0)
        if not isinstance(own, FirstLosses):
            is_judged = self.context.judge.has_quality
            return None if is_judged and not isinstance(own, Lost) else as_failure(own)
        return super()._found(tested, reference)

    def _fault_of(
        self, gated: Gated, lower_precision: bool
    ) -> numerics_verdict.NumericsFault | None:
        if not self.context.judge.has_quality and not _only_rounds(gated):
            off = gated.gradient_error
            reason = _UNTOLD if off is None else _UNJUDGED.format(off=100 * off)
            return numerics_verdict.NumericsFault(reason, margin=1.0)
        # With a quality metric, gradients only decide whether it is needed.
        return numerics_verdict.numerics_fault(
            replace(gated, gradient_error=None), lower_precision, _WORDS
        )

    def computes_alike(self, config: TrainingConfig, unchecked: bool = False) -> bool:
        """Return whether the gradients are known to be the untouched script's. Runs nothing.

        `unchecked` is what to suppose of settings that no check has compared yet.
        """
        tested, reference = self._compared(config)
        if self._is_lower(tested):
            return False
        own = self.study.notes.numerics_checks.get(_UNTOUCHED)
        known = own or self.context.traits.seen.loss
        if not (isinstance(known, FirstLosses | ObservedLoss) and known.sums.gradients):
            return False
        parts = {tested, *self._parts(config)} - {reference}
        notes = (
            self.study.notes.numerics_checks.get(part.note_key(numerics_verdict.NUMERICS))
            for part in parts
        )
        return all(_only_rounds(found) or (unchecked and found is None) for found in notes)

    def _is_split(self, config: TrainingConfig) -> bool:  # noqa: ARG002
        """Return False: the gradients of a script's micro-batches are not compared."""
        return False

    def _run(self, tested: TrainingConfig, reference: TrainingConfig, folder: Path) -> TrialOutcome:
        names = ("amp_dtype", "float32_matmul_precision")
        formats = {side[name] for side in (tested, reference) for name in names}
        is_short = not formats.isdisjoint(("bfloat16", "medium"))
        own, rounded = self._untouched(0.0), self._untouched(_ROUNDING[is_short])
        if not isinstance(own, FirstLosses):
            return own
        if not isinstance(rounded, FirstLosses):
            return rounded
        is_lower, (at_once, optimizer) = self._is_lower(tested), self._parts(tested)
        found = self._first_losses(tested, 0.0, folder, not is_lower and tested != at_once)
        if not isinstance(found, FirstLosses):
            return found
        gated = Gated(
            loss_error=_distance(found.losses, own.losses),
            reference_loss_error=_distance(rounded.losses, own.losses),
        )
        if is_lower:  # a GradScaler may skip the first steps; a probe judges the rest
            return gated
        apart = [_apart(found.sums.gradients, own.sums.gradients)]
        if tested != at_once:
            apart.append(self._settled_error(found, own, at_once))
        if tested == optimizer:
            apart.append(_apart(found.sums.update, own.sums.update))
        known = [error for error in apart if error is not None]
        return replace(
            gated,
            gradient_error=max(known) if known == apart else None,
            reach_error=_distance(found.moves, own.moves),
            rounding_reach_error=_distance(rounded.moves, own.moves),
            settled_gradients=found.sums.settled_gradients,
        )

    def _settled_error(
        self, found: FirstLosses, own: FirstLosses, at_once: TrainingConfig
    ) -> float | None:
        """Return how far gradients of the third step are from those without its new settings."""
        settled, reference = own.sums.settled_gradients, self.context.baseline
        if at_once != reference:
            before = self._found(at_once, reference)
            settled = before.settled_gradients if isinstance(before, Gated) else ()
        return _apart(found.sums.settled_gradients, settled)

    def _untouched(self, nudge: float) -> TrialOutcome:
        """Return the first losses of the untouched script, from rounded weights if asked for."""
        key = f"{_UNTOUCHED}-rounded-{nudge:g}" if nudge else _UNTOUCHED

        def run(folder: Path) -> TrialOutcome:
            seen = None if nudge else self._observed()
            return seen or self._first_losses(self.context.baseline, nudge, folder)

        return self._noted(key, run)

    def _observed(self) -> FirstLosses | None:
        """Return the observed run's first losses; None if a run of the baseline would have others.

        This is so with another seed, or if the baseline is not what was observed.
        """
        seen, own = self.context.traits.seen, self.context.baseline
        loss = seen.loss
        if loss is None or len(loss.first) < FIRST_STEPS:
            return None
        settings = TrainingConfig.of(seen.workload.baseline)
        same = all(settings[name] == own[name] for name in (*BATCH_KNOBS, *_NUMERICS))
        if not same or not loss.moves or self.context.options.sampling.seed != FIRST_SEED:
            return None
        first = loss.first[:FIRST_STEPS]
        return FirstLosses(first, loss.backwards_per_step, loss.moves, loss.sums)

    def _first_losses(
        self, config: TrainingConfig, nudge: float, folder: Path, draws_as_eager: bool = False
    ) -> TrialOutcome:
        task = TakeFirstSteps(FIRST_STEPS, nudge, draws_as_eager)
        return self.runner.run(self.context.job(task, config), folder)


def _numerics_of(config: TrainingConfig) -> dict[str, Value]:
    return {name: config[name] for name in _NUMERICS}


def _only_rounds(found: TrialOutcome | None) -> bool:
    """Return whether a check showed gradients that differ by no more than rounding."""
    error = found.gradient_error if isinstance(found, Gated) else None
    return error is not None and error <= UNNOTICED


def _apart(found: Sequence[float], own: Sequence[float]) -> float | None:
    """Return the distance between sums over gradients or an update; None if it is not known."""
    return _distance(found, own) if any(own) else None


def _distance(found: Sequence[float], own: Sequence[float]) -> float:
    """Return the L2 norm of the difference, relative to that of the untouched script's numbers.

    It is 1 if there are more or fewer of them, as in a model with other parameters.
    """
    if len(found) != len(own):
        return 1.0
    size, off = math.hypot(*own), math.dist(found, own)
    return off / size if size else float(off > 0)


@dataclass(frozen=True)
class ScriptProber(AccuracyProber):
    """Probes a script by running it until its loss is known, or until it prints its metric."""

    @property
    def numerics(self) -> FirstLossChecker:
        """Compares the first steps of this script."""
        return FirstLossChecker(self.context, self.runner, self.study)

    def training_equivalent(self, config: TrainingConfig) -> TrainingConfig:
        """Return the configuration that a probe of `config` trains.

        Harmless knobs have the baseline's values. So have those of numerics if they are known to
        leave the gradients as they are, rounding aside.
        """
        return self._probed_as(config, self.numerics.computes_alike(config))

    def unknown(self, configs: Sequence[TrainingConfig]) -> list[bool]:
        """Return for each configuration whether no seed of its training is known.

        Settings that a check may show to round count as known.
        """
        known = {self._own, *self.study.notes.qualities}
        # Thousands of configurations share few combinations of numerics.
        alike = lru_cache(None)(partial(self.numerics.computes_alike, unchecked=True))
        numerics = (self.context.baseline.replace(**_numerics_of(one)) for one in configs)
        reduced = map(self._probed_as, configs, map(alike, numerics))
        return [one.quality_key() not in known for one in reduced]

    def _probed_as(self, config: TrainingConfig, computes_alike: bool) -> TrainingConfig:
        names = [knob.name for knob in ALL_KNOBS if is_harmless(knob)]
        return self._as_baseline(config, (*names, *(_NUMERICS if computes_alike else ())))
