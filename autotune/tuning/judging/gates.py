"""Whether settings of another numeric kind compute what the baseline's do: gates, each run once.

What a gate measures is in `autotune.training.gate`; what it is worth is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autotune.config import TrainingConfig
from autotune.job import Gate
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import spelled
from autotune.outcome import (
    Failure,
    Gated,
    Lost,
    NonFinite,
    OutOfMemory,
    TrialOutcome,
    as_failure,
    outcome_from_json,
    outcome_to_json,
)
from autotune.tuning.running.runner import Runner
from autotune.tuning.scene import Scene
from autotune.tuning.storing.study import TuningStudy

PRECISION = ("amp_dtype", "float32_matmul_precision")
"""Knobs of numerics that shorten numbers; the others reorder the same arithmetic."""
NUMERICS = tuple(knob.name for knob in ALL_KNOBS if knob.effect == "numerics")
_NOTE = "gates"
# PyTorch's own criterion for compiled code, torch._dynamo.utils.same: at most so many times as far
# from float64 as eager code of the same precision is, and this much more.
_MULTIPLE = 3
_SLACK = 1e-4
# Without float64 to tell rounding from error, so much is taken for rounding.
_SLACK_WITHOUT_DOUBLE = 1e-3
# Shorter numbers change every gradient a little. Below this cosine the error is held against what
# another batch changes: in bfloat16 a residual network of 33 convolutions with BatchNorm had a
# cosine of 0.984, and its gradients differed six times as much from one batch of 32 to the next. A
# ShuffleNet that was never trained had 0.46, and 0.7 of what another batch changes; its losses over
# the first steps were right. A gradient of the same size that points anywhere has 1.
_LEAST_COSINE = 0.99
_MOST_OF_BATCH_SPREAD = 0.75
# Of what another batch changes: channels_last convolutions differ by 0.5 to 2.5 % of it.
_UNNOTICED = 0.05
# On a GPU a mask is drawn otherwise in another number format: then the error is a seed's own, which
# varies a little.
_SEED_MULTIPLE = 1.5
# Two kernels for one update differ by less, beyond the rounding of the parameters themselves.
_UPDATE_SLACK = 1e-3
# A model that draws other numbers in another format takes another seed's way, and of two such ways
# one is easily twice as far off over ten steps: more than three times in 4 of 10,000 (simulated).
_DRAWS = 1e-3
_MOST_OF_OTHER_DRAWS = 3.0
# Where the weights end. Adam's first steps are nearly sign(gradient), which amplifies rounding, and
# how much is the model's own: a reference that starts from rounded weights, and draws other numbers
# where it draws any, shows it. Measured on a CPU, in brackets what that reference was off by:
# fused_optimizer less than that always; channels_last 0.064 (0.010) in digits_cnn, and in
# photos_jpeg, a fresh ShuffleNet, 0.60 (0.52), with SGD 1.11 (0.91), in three steps 0.81 (0.52);
# compiled char_transformer as much as that (3e-5), digits_cnn 0.045 (0.004), photos_jpeg 0.41
# (0.31). From the second step on at half the rate: 0.41 to 0.49 after ten steps and 0.31 to 0.43
# after three; without momentum 0.73 to 0.81 and 0.47 (SGD), 0.37 to 0.58 and 0.32 (AdamW).
_MOST_OF_PATH = 0.15
_MULTIPLE_OF_PATH = 3.0
# Where rounding leads anywhere, as in photos_jpeg, how far still tells: steps of half the size
# reach less far whichever way they go. Rounding changed that by 0.053 at most (there, three steps
# of SGD, a tenth of 0.52; 0.026 after ten), elsewhere by less than 0.001. The faults above: 0.27 to
# 0.49 and 0.46 to 0.79 (SGD). AdamW without momentum, 0.15 in photos_jpeg, is just noticed.
_MOST_OF_REACH = 0.06
_REACH_OF_PATH = 0.2
_LEAST_MARGIN = 0.01


@dataclass(frozen=True, slots=True)
class GateFault:
    """Why a configuration does not compute what it should, and by how much."""

    reason: str
    margin: float


class Gates(Protocol):
    """Who can say whether settings compute what the baseline's do."""

    def gated(self, config: TrainingConfig) -> Gated | Failure | None:
        """What was measured; None where nothing need be."""

    def needed(self, config: TrainingConfig) -> bool:
        """Whether anything need be."""

    def fault(self, config: TrainingConfig) -> GateFault | Failure | None:
        """Why `config` does not pass; None where it does."""


@dataclass(frozen=True)
class GateKeeper:
    """Runs gates and remembers them in the study."""

    scene: Scene
    runner: Runner
    study: TuningStudy

    def gated(self, config: TrainingConfig) -> Gated | Failure | None:
        """What the gate measured for the numerics of `config`; None where none is needed."""
        tested, reference = self._compared(config)
        if tested == reference:
            return None
        key = ",".join(f"{name}={spelled(tested[name])}" for name in NUMERICS)
        known: dict[str, str] = self.study.noted(_NOTE, {})
        outcome = outcome_from_json(known[key]) if key in known else Lost("not yet run")
        # Lost, too, is what a version noted that measured less; memory was noted by one before.
        if isinstance(outcome, Lost | OutOfMemory):
            outcome = self._run(tested, reference, self._folder(key))
            # Memory that others took, or that ran out by a little, may suffice the next time.
            if not isinstance(outcome, Lost | OutOfMemory):
                self.study.note_entry(_NOTE, key, outcome_to_json(outcome))
        return _expected(outcome)

    def needed(self, config: TrainingConfig) -> bool:
        """Whether the numerics of `config` are others than those it would be compared with."""
        tested, reference = self._compared(config)
        return tested != reference

    def fault(self, config: TrainingConfig) -> GateFault | Failure | None:
        """Why `config` does not pass; None where it does, or differs in no numerics."""
        found = self.gated(config)
        match found:
            case Gated():
                tested, reference = self._compared(config)
                shorter = any(tested[name] != reference[name] for name in PRECISION)
                return gate_fault(found, shorter)
            case NonFinite(detail):
                return GateFault(f"accuracy: {detail}", margin=1.0)
            case _:
                return found

    def _compared(self, config: TrainingConfig) -> tuple[TrainingConfig, TrainingConfig]:
        """What is tested and against what: eager settings, in float32 or the baseline's precision.

        Everything that is not numerics is the baseline's, so that nothing else can differ.
        """
        baseline = self.scene.baseline.replace(num_workers=0)
        tested = baseline.replace(**{name: config[name] for name in NUMERICS})
        if tested == baseline:
            return baseline, baseline
        plain = {name: KNOBS[name].default for name in NUMERICS}
        if all(config[name] == baseline[name] for name in PRECISION):
            plain |= {name: baseline[name] for name in PRECISION}
        return tested, baseline.replace(**plain)

    def _run(self, tested: TrainingConfig, reference: TrainingConfig, folder: Path) -> TrialOutcome:
        """In float64, too, where the memory is enough for that."""
        for in_double in (True, False):
            task = Gate(reference.as_dict(), in_double)
            outcome = self.runner.run(self.scene.job(task, tested), folder)
            if not isinstance(outcome, OutOfMemory):
                break
        return outcome

    def _folder(self, key: str) -> Path:
        name = key.replace(",", "-").replace("=", "_")
        return self.scene.options.folder / "trials" / "gates" / name


def gate_fault(gated: Gated, shorter_numbers: bool) -> GateFault | None:
    """Why a gate is not passed, or None.

    Where numbers have the same length, rounding differs by order alone, or by a convolution's
    algorithm, which is no error either while it drowns in what another batch changes. Where they
    are shorter, gradients have to point where they should, or be off by less than they vary from
    batch to batch anyway; what that costs is for the probe to say. What another seed changes is
    no error, and no more than that may the losses of the first steps differ in either case. The
    weights after those have to be where rounding alone may lead, if numbers are equally long.
    """
    if gated.update_error > _UPDATE_SLACK:
        return _fault("the optimizer's update differs from the unfused one", gated.update_error)
    if shorter_numbers:
        return _fault_of_shorter(gated) or _fault_of_steps(gated)
    return _fault_of_reordered(gated) or _fault_of_steps(gated) or _fault_of_weights(gated)


def _fault_of_shorter(gated: Gated) -> GateFault | None:
    noise = max(_SEED_MULTIPLE * gated.seed_spread, _MOST_OF_BATCH_SPREAD * gated.batch_spread)
    turned = gated.gradient_cosine < _LEAST_COSINE and gated.gradient_error > noise
    exact = _best_known(gated)
    return _fault(f"gradients differ from {exact}", gated.gradient_error) if turned else None


def _fault_of_reordered(gated: Gated) -> GateFault | None:
    exact = _best_known(gated)
    slack = gated.seed_spread + (_SLACK if gated.in_double else _SLACK_WITHOUT_DOUBLE)
    usual = _MULTIPLE * gated.reference_gradient_error + slack
    if gated.gradient_error > max(usual, _UNNOTICED * gated.batch_spread):
        return _fault(f"gradients differ from {exact}", gated.gradient_error)
    if gated.loss_error > _MULTIPLE * gated.reference_loss_error + slack:
        return _fault(f"the loss differs from {exact}", gated.loss_error)
    return None


def _fault_of_steps(gated: Gated) -> GateFault | None:
    error = gated.trajectory_error
    if error <= (_MOST_OF_OTHER_DRAWS if gated.seed_spread > _DRAWS else 1):
        return None
    what = f"losses of the first steps differ by {error:.3g} times what another seed changes"
    return GateFault(f"accuracy: {what}", _margin(error - 1))


def _fault_of_weights(gated: Gated) -> GateFault | None:
    noise = gated.reference_path_error
    if gated.path_error > max(_MOST_OF_PATH, _MULTIPLE_OF_PATH * noise):
        return _fault("the weights after the first steps differ", gated.path_error)
    if gated.reach_error > max(_MOST_OF_REACH, _REACH_OF_PATH * noise):
        return _fault("how far the first steps move the weights differs", gated.reach_error)
    return None


def _best_known(gated: Gated) -> str:
    return "float64" if gated.in_double else "float32"


def _fault(what: str, error: float) -> GateFault:
    return GateFault(f"accuracy: {what} by {100 * error:.3g} %", _margin(error))


def _margin(error: float) -> float:
    return min(1.0, max(_LEAST_MARGIN, error))


def _expected(outcome: TrialOutcome) -> Gated | Failure:
    return outcome if isinstance(outcome, Gated) else as_failure(outcome)
