"""Verdict on numerics: whether settings compute what the baseline does, rounding aside.

A child measures the errors (`autotune.numerics.numerics_check`). Running such checks, once each per
study, their thresholds and the decision are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from autotune.configuration.constraints import OF_SPLIT, UNNOTICED
from autotune.configuration.evidence import GateEvidence
from autotune.configuration.job import Gate
from autotune.configuration.training_config import BATCH_KNOBS, PRECISION, TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.process.runner import Runner
from autotune.study.study import TuningStudy
from autotune.values.outcome import (
    Failure,
    Gated,
    Lost,
    NonFinite,
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
                return NumericsFault(f"accuracy: {detail}", margin=1.0)
            case _:
                return found

    def _fault_of(self, gated: Gated, lower_precision: bool) -> NumericsFault | None:
        """Return why measured errors fail the check; None if they pass."""
        return numerics_fault(gated, lower_precision)

    def _compared(self, config: TrainingConfig) -> tuple[TrainingConfig, TrainingConfig]:
        """Return the tested configuration and its reference.

        The reference is eager, in the baseline's precision if `config` has that, else in the
        default one. All knobs but those of numerics have the baseline's values in both. Both train
        in one process.
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
        "reach": "how far the first steps move the weights differs",
        "buffers": "the buffers after the first steps differ",
        **words,
    }
    for criterion, error, limit in errors(gated, lower_precision):
        if error > limit:
            reason = f"accuracy: {what[criterion]} by {100 * error:.3g} %"
            return NumericsFault(reason, min(1.0, error))
    return None


def errors(gated: Gated, lower_precision: bool) -> tuple[Error, ...]:
    """Return each measured error with its limit.

    An error may be `UNNOTICED`, or what rounding and other random numbers explain. In a lower
    precision, gradients may also differ by a part of what another batch changes: a probe judges
    the rest.

    Args:
        gated: the measured errors.
        lower_precision: True if the precision is lower than the reference's.
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
