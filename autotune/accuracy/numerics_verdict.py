"""Verdict on numerics: whether settings compute what the baseline does, rounding aside.

Of a model.py, a child measures the errors (`autotune.numerics.numerics_check`). The first steps of
a script are compared with the unchanged script's. Running such checks, once each per study, their
thresholds and the decision are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from autotune.configuration.constraints import OF_SPLIT, UNNOTICED
from autotune.configuration.evidence import GateEvidence
from autotune.configuration.job import FIRST_SEED, Gate, TakeFirstSteps
from autotune.configuration.script import is_harmless
from autotune.configuration.training_config import BATCH_KNOBS, PRECISION, TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.process.runner import Runner
from autotune.study.study import TuningStudy
from autotune.values.outcome import (
    FIRST_STEPS,
    Failure,
    FirstLosses,
    Gated,
    Lost,
    NonFinite,
    ObservedLoss,
    OutOfMemory,
    TrialOutcome,
    as_failure,
)
from autotune.values.text import as_file_name

EXCHANGE = "ddp_comm_dtype"
"""Knob of numerics that only has an effect with several processes."""
NUMERICS = tuple(knob.name for knob in ALL_KNOBS if knob.effect == "numerics")
"""Names of all knobs of numerics."""
_IN_ONE = tuple(name for name in NUMERICS if name != EXCHANGE)
MULTIPLE = 3
"""Multiple of rounding's own effect that is no fault.

It is PyTorch's for compiled code, whose error against float64 may be three times that of eager code
(`torch._dynamo.utils.same`).
"""
OF_BATCH = 0.75
"""Share of another batch's effect on the gradients that a lower precision may have.

In bfloat16, an untrained ShuffleNet has 0.7, and its losses over the first steps are right. A
gradient of the same size in a random direction has 1.
"""
OF_UPDATE = 2.0**-10
"""Error of an update from equal gradients that is no fault.

It is the epsilon of float16 and TF32, the shortest formats in which an optimizer may compute.
"""


@dataclass(frozen=True, slots=True)
class NumericsFault:
    """A failed numerical check: its reason, and the margin by which it fails."""

    reason: str
    margin: float
    """Relative error, at most 1."""


@dataclass(frozen=True)
class NumericsChecker:
    """Runs numerical checks, once each, and keeps their results in the study."""

    context: SearchContext
    runner: Runner
    study: TuningStudy

    measured: ClassVar[tuple[str, ...]] = tuple(GateEvidence.model_fields)
    """Errors that the evidence of a result has, whatever judges it."""

    def gated(self, config: TrainingConfig) -> Gated | Failure | None:
        """Return the measured errors of the numerics of `config`; None if no check is needed.

        With several checks, they are those of the first one.
        """
        return next((self._found(*pair) for pair in self._pairs(config)), None)

    def split(self, config: TrainingConfig) -> Gated | Failure | None:
        """Return by how much the summed gradients of `config` differ on the baseline's samples.

        Both sides compute eagerly in the baseline's precision, or in float64, and with the user's
        own knobs as `config` has them, because these may change the model.
        """
        if not self._is_split(config):
            return None
        plain = {name: KNOBS[name].default for name in NUMERICS if name not in PRECISION}
        own = {name: config[name] for name in self._changed_own(config)}
        reference = self.context.baseline.replace(num_workers=0, **plain, **own)
        tested = reference.replace(**{name: config[name] for name in BATCH_KNOBS})
        return self._measured(self._split_key(config), tested, reference)

    def split_error(self, config: TrainingConfig) -> float | None:
        """Return the difference that `split` found; None if it found none. Runs nothing."""
        found = self._known_split(config)
        return None if found is None else found.gradient_error

    def sums_alike(self, config: TrainingConfig) -> bool:
        """Return whether `split` found nothing but rounding. Runs nothing."""
        found = self._known_split(config)
        if found is None or found.gradient_error is None:
            return False
        return found.gradient_error <= OF_SPLIT[found.in_double]

    def trained_as(self, config: TrainingConfig) -> TrainingConfig:
        """Return the configuration that a probe of `config` trains.

        Knobs for which the numerical check is enough have the baseline's values. So has the split
        of the effective batch, if its gradients are known to differ only by rounding.
        """
        shared = [name for name in NUMERICS if name not in PRECISION]
        shared += BATCH_KNOBS if self.sums_alike(config) else ()
        return self._as_baseline(config, shared)

    def expected(self, configs: Sequence[TrainingConfig]) -> Iterator[TrainingConfig]:
        """Yield what a probe of each trains, as far as checks are expected to find."""
        yield from map(self.trained_as, configs)

    def _as_baseline(self, config: TrainingConfig, names: Iterable[str]) -> TrainingConfig:
        """Return `config` with the baseline's values for some knobs and the user's exact ones."""
        space, baseline = self.context.space, self.context.baseline
        exact = (name for name in space.effects if space.effect(name) == "exact")
        return config.replace(**{name: baseline[name] for name in (*names, *exact)})

    def _known_split(self, config: TrainingConfig) -> Gated | None:
        if not self._is_split(config):
            return None
        found = self.study.notes.numerics_checks.get(self._split_key(config))
        return found if isinstance(found, Gated) else None

    def _split_key(self, config: TrainingConfig) -> str:
        names = (*BATCH_KNOBS, *self._changed_own(config))
        return ",".join(f"{name}={config[name]}" for name in names)

    def _changed_own(self, config: TrainingConfig) -> list[str]:
        """Return the user's own knobs that `config` changes, except exact ones."""
        space, own = self.context.space, self.context.baseline
        changing = (name for name in space.effects if space.effect(name) != "exact")
        return [name for name in changing if config[name] != own[name]]

    def _is_split(self, config: TrainingConfig) -> bool:
        """Return whether steps have the baseline's samples in other batches."""
        own = self.context.baseline
        same_samples = config.effective_batch == own.effective_batch
        return same_samples and config["batch_size"] != own["batch_size"]

    def _measured(
        self, key: str, tested: TrainingConfig, reference: TrainingConfig
    ) -> Gated | Failure:
        """Return the noted errors of a check, or run it."""
        outcome = self._noted(key, lambda folder: self._run(tested, reference, folder))
        return outcome if isinstance(outcome, Gated) else as_failure(outcome)

    def _noted(self, key: str, run: Callable[[Path], TrialOutcome]) -> TrialOutcome:
        """Return the noted outcome, or call `run` with a folder and note what comes of it."""
        outcome = self.study.notes.numerics_checks.get(key)
        if outcome is None or isinstance(outcome, Lost | OutOfMemory):
            folder = self.context.options.study.folder / "trials" / "gates" / as_file_name(key)
            outcome = run(folder)
            # Memory that ran out may suffice the next time, so neither outcome is noted.
            if not isinstance(outcome, Lost | OutOfMemory):
                self.study.notes.numerics_checks[key] = outcome
        return outcome

    def needed(self, config: TrainingConfig) -> bool:
        """Return whether the numerics of `config` differ from those of its reference."""
        return bool(self._pairs(config))

    def fault(self, config: TrainingConfig) -> NumericsFault | Failure | None:
        """Return why `config` does not pass; None if it passes or needs no check."""
        faults = (self._fault(*pair) for pair in self._pairs(config))
        return next((fault for fault in faults if fault is not None), None)

    def _pairs(self, config: TrainingConfig) -> list[tuple[TrainingConfig, TrainingConfig]]:
        """Return the checks that `config` needs: each a tested configuration and its reference."""
        pairs = (self._compared(config), self._exchanged(config))
        return [(tested, reference) for tested, reference in pairs if tested != reference]

    def _found(self, tested: TrainingConfig, reference: TrainingConfig) -> Gated | Failure | None:
        return self._measured(tested.note_key(NUMERICS), tested, reference)

    def _fault(
        self, tested: TrainingConfig, reference: TrainingConfig
    ) -> NumericsFault | Failure | None:
        found = self._found(tested, reference)
        match found:
            case Gated():
                lower = any(tested[name] != reference[name] for name in PRECISION)
                return self._fault_of(found, lower)
            case NonFinite(detail):
                return NumericsFault(detail, margin=1.0)
            case _:
                return found

    def _fault_of(self, gated: Gated, lower_precision: bool) -> NumericsFault | None:
        """Return why measured errors fail the check; None if they pass."""
        return numerics_fault(gated, lower_precision)

    def _compared(self, config: TrainingConfig) -> tuple[TrainingConfig, TrainingConfig]:
        """Return the tested configuration and its reference, which train in one process.

        The reference is eager, in the baseline's precision if `config` has that, else in the
        default one. Knobs that are not of numerics have the baseline's values in both.
        """
        baseline = self.context.baseline.replace(num_workers=0).alone
        tested = baseline.replace(**{name: config[name] for name in _IN_ONE})
        if tested == baseline:
            return baseline, baseline
        plain = {name: KNOBS[name].default for name in _IN_ONE}
        precision = [name for name in PRECISION if name in _IN_ONE]
        if all(config[name] == baseline[name] for name in precision):
            plain |= {name: baseline[name] for name in precision}
        return tested, baseline.replace(**plain)

    def _exchanged(self, config: TrainingConfig) -> tuple[TrainingConfig, TrainingConfig]:
        """Return `config` in several processes, and the same with uncompressed gradients."""
        baseline = self.context.baseline
        numerics = {name: config[name] for name in _IN_ONE}
        reference = baseline.replace(num_workers=0, **numerics).alone
        if config[EXCHANGE] == baseline[EXCHANGE]:
            return reference, reference
        return reference.replace(**{EXCHANGE: config[EXCHANGE]}), reference

    def _run(self, tested: TrainingConfig, reference: TrainingConfig, folder: Path) -> TrialOutcome:
        """Run the check with a float64 reference, or without one if memory runs out.

        DistributedDataParallel does not change the format of a model that it wraps.
        """
        for in_double in (True, False) if tested[EXCHANGE] is None else (False,):
            task = Gate(reference.as_dict(), in_double)
            outcome = self.runner.run(self.context.job(task, tested), folder)
            if not isinstance(outcome, OutOfMemory):
                break
        return outcome


class Error(NamedTuple):
    """A measured error with the most that it may be."""

    criterion: str
    value: float
    limit: float


def numerics_fault(
    gated: Gated, lower_precision: bool, words: Mapping[str, str] = MappingProxyType({})
) -> NumericsFault | None:
    """Return why the measured errors fail the numerical check; None if they pass.

    `words` replace the texts of some criteria.
    """
    exact = "float64" if gated.in_double else "float32"
    what = {
        "update": "the optimizer's update differs from the unfused one",
        "gradients": f"gradients differ from {exact}",
        "loss": f"the loss differs from {exact}",
        "path": "the weights after the first steps differ",
        "reach": "the length of the first steps differs",
        "buffers": "the buffers after the first steps differ",
        **words,
    }
    for criterion, error, limit in errors(gated, lower_precision):
        if error > limit:
            reason = f"{what[criterion]} by {100 * error:.3g} %"
            return NumericsFault(reason, min(1.0, error))
    return None


def errors(gated: Gated, lower_precision: bool) -> tuple[Error, ...]:
    """Return each measured error with its limit.

    An error may be `UNNOTICED`, or what rounding and other random numbers explain. In a lower
    precision, gradients may also differ by a part of what another batch changes: a probe judges
    the rest.
    """
    drawn = gated.seed_spread
    other = drawn + (OF_BATCH * gated.batch_spread if lower_precision else 0)
    found = (
        ("update", gated.update_error, OF_UPDATE),
        ("gradients", gated.gradient_error, _limit(gated.reference_gradient_error, other)),
        ("loss", gated.loss_error, _limit(gated.reference_loss_error, drawn)),
        ("path", gated.path_error, _limit(gated.rounding_path_error)),
        ("reach", gated.reach_error, _limit(gated.rounding_reach_error)),
        ("buffers", gated.buffer_error, _limit(gated.rounding_buffer_error)),
    )
    return tuple(Error(name, error, limit) for name, error, limit in found if error is not None)


def _limit(rounding: float | None, drawn: float = 0.0) -> float:
    return math.inf if rounding is None else max(UNNOTICED, MULTIPLE * rounding + drawn)


_ROUNDING = {True: 2.0**-7, False: 2.0**-10}
"""Epsilon of the shortest number format: of bfloat16, and else of TF32 and float16."""
_UNTOUCHED = "untouched"
_UNJUDGED = (
    "the gradients differ from the unchanged script's by {off:.3g} %, and without "
    "--metric-regex nothing shows whether it trains as well"
)
_UNTOLD = (
    "the gradients of the first steps cannot be compared, and without --metric-regex "
    "nothing else shows whether it trains as well"
)
_WORDS = {
    "loss": "the first losses differ from the unchanged script's",
    "reach": "the length of the first steps differs from the unchanged script's",
}
# Knobs that take effect in the first step, such as those that replace the script's own values. All
# other settings of a model take effect by the third.
_AT_ONCE = ("channels_last", "optimizer_impl", "sdpa_backend")
# Knobs of numerics that a script needs a check for.
_OF_SCRIPTS = tuple(name for name in NUMERICS if not is_harmless(KNOBS[name]))
_HARMLESS = tuple(knob.name for knob in ALL_KNOBS if is_harmless(knob))


@dataclass(frozen=True)
class FirstLossChecker(NumericsChecker):
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
        return self._reduced(config, _OF_SCRIPTS), self.context.baseline

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
        replaced = [name for name in _OF_SCRIPTS if name in self.context.traits.seen.own]
        at_once = (*_AT_ONCE, *replaced)
        return self._reduced(config, at_once), self._reduced(config, ("optimizer_impl",))

    def _reduced(self, config: TrainingConfig, names: Sequence[str]) -> TrainingConfig:
        return self.context.baseline.replace(**{name: config[name] for name in names})

    def _is_lower(self, tested: TrainingConfig) -> bool:
        return any(tested[name] != self.context.baseline[name] for name in PRECISION)

    def _found(self, tested: TrainingConfig, reference: TrainingConfig) -> Gated | Failure | None:
        """Return by how much the losses differ; None if they cannot be read."""
        own = self._untouched(0.0)
        if not isinstance(own, FirstLosses):
            is_judged = self.context.judge.has_quality
            return None if is_judged and not isinstance(own, Lost) else as_failure(own)
        return super()._found(tested, reference)

    def _fault_of(self, gated: Gated, lower_precision: bool) -> NumericsFault | None:
        if not self.context.judge.has_quality and not _only_rounds(gated):
            off = gated.gradient_error
            reason = _UNTOLD if off is None else _UNJUDGED.format(off=100 * off)
            return NumericsFault(reason, margin=1.0)
        # With a quality metric, gradients only decide whether it is needed.
        return numerics_fault(replace(gated, gradient_error=None), lower_precision, _WORDS)

    def trained_as(self, config: TrainingConfig) -> TrainingConfig:
        """Return the configuration that a probe of `config` trains.

        Harmless knobs have the baseline's values. So have those of numerics if they are known to
        leave the gradients as they are, rounding aside.
        """
        return self._probed_as(config, self.computes_alike(config))

    def expected(self, configs: Sequence[TrainingConfig]) -> Iterator[TrainingConfig]:
        """Yield what a probe of each trains, if checks find nothing but rounding."""
        # Thousands of configurations share few combinations of numerics.
        alike = lru_cache(None)(partial(self.computes_alike, unchecked=True))
        numerics = (self._reduced(config, _OF_SCRIPTS) for config in configs)
        yield from map(self._probed_as, configs, map(alike, numerics))

    def _probed_as(self, config: TrainingConfig, computes_alike: bool) -> TrainingConfig:
        names = (*_HARMLESS, *(_OF_SCRIPTS if computes_alike else ()))
        return self._as_baseline(config, names)

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
        notes = (self.study.notes.numerics_checks.get(part.note_key(NUMERICS)) for part in parts)
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
        same = all(settings[name] == own[name] for name in (*BATCH_KNOBS, *_OF_SCRIPTS))
        if not same or not loss.moves or self.context.options.sampling.seed != FIRST_SEED:
            return None
        first = loss.first[:FIRST_STEPS]
        return FirstLosses(first, loss.backwards_per_step, loss.moves, loss.sums)

    def _first_losses(
        self, config: TrainingConfig, nudge: float, folder: Path, draws_as_eager: bool = False
    ) -> TrialOutcome:
        task = TakeFirstSteps(FIRST_STEPS, nudge, draws_as_eager)
        return self.runner.run(self.context.job(task, config), folder)


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
