"""Verdict on numerics: whether settings compute what the baseline does, rounding aside.

A child measures the errors (`autotune.numerics.numerics_check`). Running such checks, once each per
study, their thresholds and the decision are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autotune.configuration.job import Gate
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import spelled
from autotune.processes.runner import Runner
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

PRECISION = ("amp_dtype", "float32_matmul_precision")
"""Knobs of numerics that lower the precision; the others reorder the same arithmetic."""
NUMERICS = tuple(knob.name for knob in ALL_KNOBS if knob.effect == "numerics")
"""Names of all knobs of numerics."""
# PyTorch's criterion for compiled code (torch._dynamo.utils.same): the error against float64 is at
# most this multiple of the error of eager code in the same precision, plus the slack.
_MULTIPLE = 3
_SLACK = 1e-4
# Slack without a float64 reference, which could tell rounding from error.
_SLACK_WITHOUT_DOUBLE = 1e-3
# A lower precision changes every gradient a little. Below this cosine, the error must be less than
# this share of the difference between two batches. In bfloat16, a residual network of 33
# convolutions with BatchNorm had a cosine of 0.984 and a sixth of that difference. An untrained
# ShuffleNet had 0.46 and 0.7 of it; its losses over the first steps were right. A gradient of the
# same size in a random direction has a share of 1.
_LEAST_COSINE = 0.99
_MOST_OF_BATCH_SPREAD = 0.75
# Share of the difference between two batches that is ignored; channels_last has 0.5 to 2.5 %.
_UNNOTICED = 0.05
# On a GPU, another number format draws other random masks. The error is then like that of another
# seed, which varies a little.
_SEED_MULTIPLE = 1.5
# Two kernels for one update differ by less, beyond the rounding of the parameters themselves.
_UPDATE_SLACK = 1e-3
# Above this spread over seeds, the model draws random numbers. In another format it may draw
# others, and its losses then differ as between seeds: by more than three times the difference of
# one pair of seeds, over ten steps, in 4 of 10,000 cases (simulated).
_DRAWS = 1e-3
_MOST_OF_OTHER_DRAWS = 3.0
# Limit of the path error: the difference of the weights after the first steps. Adam's first steps
# are nearly sign(gradient), which amplifies rounding by an amount that depends on the model. The
# reference's own path error, from rounded first weights and other random numbers, shows how much.
# Measured on a CPU, the reference's own error in brackets:
#   fused_optimizer   always less than the reference's own
#   channels_last     digits_cnn 0.064 (0.010); photos_jpeg, an untrained ShuffleNet: 0.60 (0.52),
#                     with SGD 1.11 (0.91), after three steps 0.81 (0.52)
#   torch.compile     char_transformer equal (3e-5), digits_cnn 0.045 (0.004), photos_jpeg 0.41
#                     (0.31)
# Faults after ten steps, and after three: half the learning rate from the second step on 0.41 to
# 0.49, and 0.31 to 0.43; no momentum 0.73 to 0.81, and 0.47 (SGD); 0.37 to 0.58, and 0.32 (AdamW).
_MOST_OF_PATH = 0.15
_MULTIPLE_OF_PATH = 3.0
# Limit of the reach error: the difference of the distance that the weights moved, in any direction.
# It still tells where rounding changes the direction, as in photos_jpeg. Rounding changed it by
# 0.053 at most (there, three steps of SGD, a tenth of 0.52; 0.026 after ten), elsewhere by less
# than 0.001. The faults above: 0.27 to 0.49, and 0.46 to 0.79 (SGD). AdamW without momentum has
# 0.15 in photos_jpeg, little more than the limit there.
_MOST_OF_REACH = 0.06
_REACH_OF_PATH = 0.2
_LEAST_MARGIN = 0.01


@dataclass(frozen=True, slots=True)
class NumericsFault:
    """A failed numerics check: its reason, and the margin by which it fails."""

    reason: str
    margin: float
    """Relative error, 0.01 to 1."""


class NumericsChecks(Protocol):
    """Numerics checks against the baseline."""

    def gated(self, config: TrainingConfig) -> Gated | Failure | None:
        """Return the measured errors of `config`; None if no check is needed."""

    def needed(self, config: TrainingConfig) -> bool:
        """Return whether `config` needs a check."""

    def fault(self, config: TrainingConfig) -> NumericsFault | Failure | None:
        """Return why `config` does not pass; None if it does."""


@dataclass(frozen=True)
class NumericsChecker:
    """Runs numerics checks, once each, and keeps their results in the study."""

    context: SearchContext
    runner: Runner
    study: TuningStudy

    def gated(self, config: TrainingConfig) -> Gated | Failure | None:
        """Return the measured errors of the numerics of `config`; None if no check is needed."""
        tested, reference = self._compared(config)
        if tested == reference:
            return None
        key = ",".join(f"{name}={spelled(tested[name])}" for name in NUMERICS)
        outcome = self.study.notes.numerics_check(key)
        # A note in another version's format reads as Lost and is measured again.
        if outcome is None or isinstance(outcome, Lost | OutOfMemory):
            outcome = self._run(tested, reference, self._folder(key))
            # Memory that ran out may suffice the next time, so neither outcome is noted.
            if not isinstance(outcome, Lost | OutOfMemory):
                self.study.notes.set_numerics_check(key, outcome)
        return _expected(outcome)

    def needed(self, config: TrainingConfig) -> bool:
        """Return whether the numerics of `config` differ from those of its reference."""
        tested, reference = self._compared(config)
        return tested != reference

    def fault(self, config: TrainingConfig) -> NumericsFault | Failure | None:
        """Return why `config` does not pass; None if it passes or needs no check."""
        found = self.gated(config)
        match found:
            case Gated():
                tested, reference = self._compared(config)
                shorter = any(tested[name] != reference[name] for name in PRECISION)
                return numerics_fault(found, shorter)
            case NonFinite(detail):
                return NumericsFault(f"accuracy: {detail}", margin=1.0)
            case _:
                return found

    def _compared(self, config: TrainingConfig) -> tuple[TrainingConfig, TrainingConfig]:
        """Return the tested configuration and its reference.

        The reference is eager, in the baseline's precision if `config` has that, else in the
        default one. All knobs but those of numerics have the baseline's values in both.
        """
        baseline = self.context.baseline.replace(num_workers=0)
        tested = baseline.replace(**{name: config[name] for name in NUMERICS})
        if tested == baseline:
            return baseline, baseline
        plain = {name: KNOBS[name].default for name in NUMERICS}
        if all(config[name] == baseline[name] for name in PRECISION):
            plain |= {name: baseline[name] for name in PRECISION}
        return tested, baseline.replace(**plain)

    def _run(self, tested: TrainingConfig, reference: TrainingConfig, folder: Path) -> TrialOutcome:
        """Run the check with a float64 reference, or without one if memory runs out."""
        for in_double in (True, False):
            task = Gate(reference.as_dict(), in_double)
            outcome = self.runner.run(self.context.job(task, tested), folder)
            if not isinstance(outcome, OutOfMemory):
                break
        return outcome

    def _folder(self, key: str) -> Path:
        name = key.replace(",", "-").replace("=", "_")
        return self.context.options.study.folder / "trials" / "gates" / name


def numerics_fault(gated: Gated, shorter_numbers: bool) -> NumericsFault | None:
    """Return why the measured errors fail the numerics check; None if they pass.

    - Always: the optimizer's update must agree. Losses of the first steps may differ by what
      another seed changes in them.
    - In the same precision: gradients and loss may differ by rounding, and gradients also by a
      small share of the difference between two batches. The weights after the first steps may
      differ by what rounding explains.
    - In another precision: gradients must point in the right direction, or differ by less than
      between batches or seeds. A probe judges the rest.

    Args:
        gated: the measured errors.
        shorter_numbers: whether the precision differs from the reference's.
    """
    if gated.update_error > _UPDATE_SLACK:
        return _fault("the optimizer's update differs from the unfused one", gated.update_error)
    if shorter_numbers:
        return _fault_of_shorter(gated) or _fault_of_steps(gated)
    return _fault_of_reordered(gated) or _fault_of_steps(gated) or _fault_of_weights(gated)


def _fault_of_shorter(gated: Gated) -> NumericsFault | None:
    noise = max(_SEED_MULTIPLE * gated.seed_spread, _MOST_OF_BATCH_SPREAD * gated.batch_spread)
    turned = gated.gradient_cosine < _LEAST_COSINE and gated.gradient_error > noise
    exact = _best_known(gated)
    return _fault(f"gradients differ from {exact}", gated.gradient_error) if turned else None


def _fault_of_reordered(gated: Gated) -> NumericsFault | None:
    exact = _best_known(gated)
    slack = gated.seed_spread + (_SLACK if gated.in_double else _SLACK_WITHOUT_DOUBLE)
    usual = _MULTIPLE * gated.reference_gradient_error + slack
    if gated.gradient_error > max(usual, _UNNOTICED * gated.batch_spread):
        return _fault(f"gradients differ from {exact}", gated.gradient_error)
    if gated.loss_error > _MULTIPLE * gated.reference_loss_error + slack:
        return _fault(f"the loss differs from {exact}", gated.loss_error)
    return None


def _fault_of_steps(gated: Gated) -> NumericsFault | None:
    error = gated.trajectory_error
    if error <= (_MOST_OF_OTHER_DRAWS if gated.seed_spread > _DRAWS else 1):
        return None
    what = f"losses of the first steps differ by {error:.3g} times what another seed changes"
    return NumericsFault(f"accuracy: {what}", _margin(error - 1))


def _fault_of_weights(gated: Gated) -> NumericsFault | None:
    noise = gated.reference_path_error
    if gated.path_error > max(_MOST_OF_PATH, _MULTIPLE_OF_PATH * noise):
        return _fault("the weights after the first steps differ", gated.path_error)
    if gated.reach_error > max(_MOST_OF_REACH, _REACH_OF_PATH * noise):
        return _fault("how far the first steps move the weights differs", gated.reach_error)
    return None


def _best_known(gated: Gated) -> str:
    return "float64" if gated.in_double else "float32"


def _fault(what: str, error: float) -> NumericsFault:
    return NumericsFault(f"accuracy: {what} by {100 * error:.3g} %", _margin(error))


def _margin(error: float) -> float:
    return min(1.0, max(_LEAST_MARGIN, error))


def _expected(outcome: TrialOutcome) -> Gated | Failure:
    return outcome if isinstance(outcome, Gated) else as_failure(outcome)
