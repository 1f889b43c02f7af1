"""The parts of best.yaml on accuracy: the quality, its tolerance, the numerics check."""

from __future__ import annotations

from typing import Literal

from autotune.configuration.accuracy_rule import OF_SPLIT
from autotune.configuration.evidence_parts import Pair, Part, Settings

UNCHANGED = "unchanged"
"""Metric name of a search that varies nothing that could change the trained model."""
NOT_MEASURED = "not measured: nothing was tried that could change it"
"""Text shown in place of the quality of such a search."""
TRAINING_LOSS = "training_loss"
"""Metric name of a script that is judged by the loss on which it calls backward."""


class GateEvidence(Part):
    """Errors found by the numerics check, against float64, or float32 if the model needs it."""

    left_out_if_none = frozenset({"gradient_error", "update_error", "buffer_error"})
    loss_error: float
    gradient_error: float | None = None
    """None for a script that a quality judged; else estimated from sums over its gradients."""
    update_error: float | None = None
    """Relative error of the optimizer's first update from equal gradients; None in recorded checks
    without it."""
    path_error: float | None = None
    """Distance of the weights after the first steps from the reference's, divided by the distance
    that the reference's moved; None for a script."""
    reach_error: float | None = None
    """Relative difference in the distance that the weights moved; None for a script."""
    buffer_error: float | None = None
    """As `path_error`, of the buffers; None in recorded checks without it."""


class AccuracyEvidence(Part):
    """Quality against its tolerance; the constraint holds if `margin` <= 0.

    `baseline` and `best` are means over the same seeds. A short probe bounds early training only.
    """

    left_out_if_none = frozenset({"judged_by", "unjudged"})
    evidence: Literal["exact", "gate", "probe", "gate and probe"] = "probe"
    """Kind of evidence. Without a probe, `best` is the baseline's quality, because the training
    computes the same."""
    gate: GateEvidence | None = None
    metric: str
    """Name of the quality."""
    baseline: float
    best: float
    difference: float | None = None
    """Mean of best minus baseline, seed by seed, in the metric's unit; None without quality."""
    difference_ci90: Pair | None = None
    """The 90 % interval of that mean: each end is a one-sided 95 % bound; the worse one decides.

    None if no seed of `best` was trained, because it trains as the baseline does.
    """
    tolerance: float
    """Loss of quality that is allowed, in the metric's unit."""
    allowed: str | None = None
    """The meaning of the tolerance, in words; None if nothing was measured."""
    margin: float
    """Relative excess over what is allowed; <= 0 holds."""
    samples: int
    """Samples that each probe trained on; of a script, the fewest."""
    epochs: float | None = None
    """The same in epochs; None for a stream without a length."""
    share_of_run: float | None = None
    """The same as a share of the run of --run-samples or --run-epochs; None without one."""
    smallest_shown: float | None = None
    """Smallest difference that the seeds could have shown: half the width of the interval."""
    seeds: int
    """Seeds that were trained with each of both settings."""
    needs_full_run: bool
    """True if a setting changed that can change the course of training: check a full one."""
    split_error: float | None = None
    """Relative difference of the gradients that smaller batches add up to, on the same samples.

    None unless the effective batch is the baseline's in other parts.
    """
    judged_by: str | None = None
    """The quality that judged a script, or its gradients, in words.

    None for a model.py. `autotune run` applies settings that change the arithmetic of that script
    only if it is there.
    """
    unjudged: str | None = None
    """Reason why settings that change a script's training were not searched; None otherwise."""

    @property
    def is_measured(self) -> bool:
        """Return False if no quality was measured."""
        return self.metric != UNCHANGED

    @property
    def not_measured_text(self) -> str:
        """Return the text in place of a quality that was not measured, with the reason."""
        return self.stand_in_text + (f"; {self.unjudged}" if self.unjudged else "")

    @property
    def stand_in_text(self) -> str:
        """Return that text without why no quality could be measured."""
        if self.evidence == "gate" and self.judged_by:
            return f"not measured: judged by {self.judged_by}"
        return NOT_MEASURED

    @property
    def allowed_text(self) -> str:
        """Return the tolerance and what it is."""
        return f"{self.tolerance:.3g} worse{(self.allowed and f': {self.allowed}') or ''}"

    @property
    def probe_text(self) -> str:
        """Return what the probes of `best` can tell; empty if there were none."""
        if self.smallest_shown is None:
            return ""
        parts = []
        if self.epochs is not None:
            parts.append(_epochs_text(self.epochs))
        if self.share_of_run is not None:
            parts.append(f"{100 * self.share_of_run:.2g} % of the run")
        length = f" ({', '.join(parts)})" if parts else ""
        shown = (
            f"a difference below {self.smallest_shown:.2g} would not show"
            if self.smallest_shown
            else "the same value with every seed, so how fine it is, is not known"
        )
        return f"{self.samples} samples each{length}; {shown}"

    @property
    def split_text(self) -> str:
        """Return how the gradients of smaller batches differ; empty if that was not measured."""
        if self.split_error is None:
            return ""
        percent = f"{100 * self.split_error:.2g} %"
        is_more = self.needs_full_run and self.split_error > OF_SPLIT[True]
        cause = "more than rounding, so it was probed" if is_more else "by rounding"
        return f"summed over smaller batches they differ by {percent} on the same samples: {cause}"

    @property
    def difference_text(self) -> str:
        """Return the difference with its interval and seeds; empty in files without one."""
        if self.difference is None:
            return ""
        if self.evidence == "gate":
            return "not probed: it differs by rounding alone"
        if self.difference_ci90 is None:
            return "no difference: the same training"
        if self.seeds == 1:
            return f"difference {self.difference:.3g} on the script's own seed"
        low, high = self.difference_ci90
        return (
            f"difference {self.difference:.3g} ({low:.3g} to {high:.3g}) over the same "
            f"{self.seeds} seeds"
        )


class NotProven(Part):
    """A faster configuration that its seeds showed neither to be accurate enough nor inaccurate.

    It may be as good as the answer is; it is not emitted.
    """

    trial: int
    changed: Settings
    """Settings that differ from the baseline's."""
    quality: float
    """Mean quality over the seeds."""
    bound: float | None = None
    """Worst mean quality that is likely, by 95 %; None if the seeds do not tell."""
    limit: float
    """Worst mean quality that is allowed over these seeds."""
    seeds: int


def _epochs_text(epochs: float) -> str:
    shown = f"{epochs:.2g}"
    if shown == "1":
        return "1 epoch"
    return f"{shown} epochs" if epochs > 1 else f"{shown} of an epoch"
