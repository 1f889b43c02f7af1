"""Words for accuracy probes of the user's own settings that fail."""

from __future__ import annotations

from autotune.process.common.trial_folder import EVALUATION
from autotune.values.errors import WorkloadError
from autotune.values.outcome import Failure, OutOfMemory, TimedOut, describe


def no_reference(failure: Failure) -> str:
    """Return why the baseline is no feasible reference, after its probe failed.

    Raises:
        WorkloadError: the probe failed for another reason than memory or time.
    """
    if isinstance(failure, OutOfMemory | TimedOut):
        return f"accuracy probe: {describe(failure)}{_advice(failure)}"
    raise WorkloadError(own_accuracy_fails(failure))


def _advice(failure: Failure) -> str:
    """Return advice if the evaluation ran out of memory; else an empty text."""
    if isinstance(failure, OutOfMemory) and failure.during == EVALUATION:
        return "; evaluate fewer samples at a time in evaluate(model, device), or raise the limit"
    return ""


def own_accuracy_fails(failure: Failure) -> str:
    """Return the error message for probes of the baseline that fail."""
    told = f"{describe(failure)}{_advice(failure)}"
    return f"accuracy cannot be measured with your own settings: {told}"
