"""The parts of best.yaml: accuracy, memory, stages, blocks, runs, machine; and the base of all."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from autotune.configuration.constraints import OF_SPLIT
from autotune.configuration.training_config import LrRule
from autotune.knobs.base import Value
from autotune.values.text import size, span

Pair = tuple[float, float]
# best_config checks the values: it reports one fault where pydantic's union reports three.
Settings = dict[str, Annotated[Value, pydantic.SkipValidation]]
Stage = Literal["loading", "copying", "launching", "computing"]
EvidenceKind = Literal[
    "exact", "numerical check", "short trainings", "numerical check and short trainings"
]


class Part(pydantic.BaseModel):
    """A part of best.yaml; unknown names are refused, and None is not written."""

    model_config = pydantic.ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False
    )

    @pydantic.model_serializer(mode="wrap")
    def _without_absent(self, write: pydantic.SerializerFunctionWrapHandler) -> dict[str, object]:
        return {name: value for name, value in write(self).items() if value is not None}


class Gain(Part):
    """Gain of some settings, from rounds that also timed the configuration without them."""

    settings: Settings
    """One setting, or several that were left out together."""
    ratio: float
    """Speed with them over that without them."""
    ci95: Pair
    rounds: int


class DeviceMemoryEvidence(Part):
    """Memory of the accelerator with the result, in bytes; see `DeviceMemory`."""

    total: int
    free: int
    """Memory that no process held."""
    reserved: int
    """Peak of the allocator, its cache included; the limit is for this."""
    allocated: int
    """Peak of the memory of tensors."""
    context: int
    """Memory outside of the allocator: the driver's context, libraries, other processes."""


class MemoryGrowth(Part):
    """Memory that grew from block to block in nearly all timed processes, in bytes an hour."""

    baseline: float | None = None
    """Under the user's settings; None if it did not grow, or would not reach the limit within three
    days or the length of the run."""
    best: float | None = None
    """Under the result's settings; None for the same reasons."""


class MemoryEvidence(Part):
    """Peak memory against its limit; the constraint holds if `margin` <= 0."""

    peak_bytes: int
    limit_bytes: int
    margin: float
    """Peak over limit, less 1."""
    device: DeviceMemoryEvidence | None = None
    """None on a CPU."""
    longest_of: int | None = None
    """Samples among which the longest were found, which are in the peak as one batch.

    None if samples are equally long or their lengths are unknown.
    """
    dataset_samples: int | None = None
    """Samples of the whole dataset."""
    growth_per_hour: MemoryGrowth | None = None
    """None if memory was not seen to grow."""

    @property
    def in_words(self) -> str:
        """Return the peak, the limit, and on an accelerator the parts of its memory, as text."""
        text = f"{size(self.peak_bytes)} of {size(self.limit_bytes)}"
        if self.longest_of is not None:
            looked_at = f"{self.longest_of} of {self.dataset_samples} samples"
            text += f", with a batch of the longest among {looked_at}"
        if (own := self.device) is not None:
            text += (
                f" (tensors {size(own.allocated)}, outside the allocator {size(own.context)}, "
                f"free {size(own.free)})"
            )
        return f"{text}{self._growth_in_words}"

    @property
    def _growth_in_words(self) -> str:
        """Return how fast memory grows, to follow another text; empty if it does not."""
        growth = self.growth_per_hour
        if growth is None:
            return ""
        own = "" if growth.baseline is None else f"{size(round(growth.baseline))} per hour"
        if growth.best is None:
            return f"; with your settings it grows by {own}"
        left = span(3600 * max(0, self.limit_bytes - self.peak_bytes) / growth.best)
        own = f" ({own} with your settings)" if own and growth.best != growth.baseline else ""
        return (
            f"; it grows by {size(round(growth.best))} per hour{own}, and reaches the limit in "
            f"{left}: the training keeps tensors, or fills a cache"
        )


class Phases(Part):
    """Samples per second of each phase of a step by itself; None if it takes no time.

    They were timed once, before the trials. `samples_per_second` of the confirmation may lie above
    the slowest by the difference of two processes.
    """

    bottleneck: Stage
    """The bottleneck: the slowest phase."""
    loading: float | None = None
    copying: float | None = None
    """Samples per second of copying; None on a CPU, where nothing is copied."""
    launching: float | None = None
    """Samples per second at which Python launches the kernels of a step; None on a CPU."""
    computing: float | None = None
    busy_share: float | None = None
    """Share of a step in which kernels run on the GPU, 0 to 1; None if unknown."""
    optimizer_share: float
    """Share of the computing time that the optimizer takes, 0 to 1."""


class NotConfirmed(Part):
    """A configuration that was faster in its trial and could not be tested or timed again."""

    trial: int
    changed: Settings
    """Settings that differ from the baseline's."""
    reason: str


class Arithmetic(Part):
    """Floating-point operations of a training step, and the share of the machine's rate in use."""

    flops_per_sample: float | None = None
    """Floating-point operations of a training step for each sample; None if not counted."""
    number_format: str | None = None
    """Format of the step's products: a dtype, or tf32."""
    matmul_flops_per_second: float | None = None
    """Operations per second of matrix products on the machine in that format."""
    mfu: float | None = None
    """Model FLOPs utilisation, 0 to 1: the FLOPs of the best throughput over that rate."""


class Steps(Part):
    """Seconds of single training steps, which only a CPU shows."""

    median_seconds: float
    p99_seconds: float
    longest_seconds: float
    remark: str | None = None
    """Set if a few slow steps take much of the time."""


class PredictedRun(Part):
    """Predicted seconds of a whole run: the one-time cost, and `samples` at the throughput."""

    samples: int
    baseline_seconds: float
    best_seconds: float


class TimeToLoss(Part):
    """Samples and seconds of training until it reaches a loss."""

    loss: float
    """Training loss, smoothed over the last fifth of the samples so far."""
    baseline_samples: float
    best_samples: float
    baseline_seconds: float
    best_seconds: float
    seeds: int = 0
    """Seeds that were trained with each of both settings; 0 if the training is the same."""
    samples_ci95: Pair | None = None
    """Interval of `best_samples` over `baseline_samples`; None without seeds."""
    throughput_ci95: Pair
    """Interval of the ratio of the throughputs, from alternating fresh processes."""

    def in_words(self, counted: str) -> str:
        """Return the loss, and the seconds and samples (or what is counted) to it, as text."""
        spans = f"{span(self.baseline_seconds)} -> {span(self.best_seconds)}"
        text = f"{spans} to a training loss of {self.loss:.4g}"
        if self.samples_ci95 is None:
            return f"{text}, in the same {counted}"
        low, high = self.samples_ci95
        ratio = self.best_samples / self.baseline_samples
        seeds = f"({low:.2f} to {high:.2f}, {self.seeds} seeds)"
        return f"{text}, in {ratio:.2f}x the {counted} {seeds}"


class Blocks(Part):
    """Number of timed blocks behind the throughputs, and of those that were disturbed."""

    timed: int
    gpu_held_back: dict[str, int] | None = None
    """Blocks in which something held the GPU's clock back, for each reason; None without any."""
    disturbed: int | None = None
    """Number of disturbed blocks; None if unknown, as off Linux."""

    @property
    def remark(self) -> str | None:
        """A remark if something held the GPU's clock back; None otherwise."""
        if not self.gpu_held_back:
            return None
        told = ", ".join(f"{reason} in {count}" for reason, count in self.gpu_held_back.items())
        return (
            f"the GPU's clock was throttled in timed blocks ({told} of {self.timed}), so a longer "
            "training may run at a lower clock"
        )


class MachineRecord(Part):
    """The machine on which the result was measured."""

    device: str
    cpu: str
    cores: int
    memory_bytes: int
    torch: str
    python: str
    driver: str | None = None
    """Version of the accelerator's driver; None without an accelerator."""
    fingerprint: str
    """Hash of all facts on the machine; measurements may not hold if it differs."""


class Searched(Part):
    """The part of the search space that was measured."""

    configurations: int
    """Size of the search space on that machine."""
    measured: int
    """Configurations that were trained and timed, without the baseline."""
    failed: int = 0
    """Configurations that ran out of memory, crashed or hung."""
    tried: dict[str, tuple[Annotated[Value, pydantic.SkipValidation], ...]]
    """Measured values of each varied setting, the baseline's value included."""
    never_varied: tuple[str, ...]
    """Settings with several values in the space, only one of which was measured."""


class LearningRate(Part):
    """Scaling of the learning rates, in trials and short trainings alike."""

    rule: LrRule = "none"
    factor: float = 1.0
    flag: str | None = None
    """Flag of a script for its learning rate; None for a model.py."""
    value: float | None = None
    """Value of that flag in the untouched script."""


UNCHANGED = "unchanged"
"""Metric name of a search that varies nothing that could change the trained model."""
NOT_MEASURED = "not measured: nothing was tried that could change it"
"""Text shown in place of the quality of such a search."""


class GateEvidence(Part):
    """Errors found by the numerical check, against float64, or float32 if the model needs it."""

    loss_error: float
    gradient_error: float | None = None
    """None for a script with a quality metric; otherwise from sums over its gradients."""
    update_error: float | None = None
    """Relative error of the optimizer's first update from equal gradients; None if not recorded."""
    path_error: float | None = None
    """Distance of the weights after the first steps from the reference's, divided by the distance
    that the reference's moved; None for a script."""
    reach_error: float | None = None
    """Relative difference in the distance that the weights moved; None for a script."""
    buffer_error: float | None = None
    """Like `path_error`, for the buffers; None in recorded checks without it."""


class AccuracyEvidence(Part):
    """Quality against its tolerance; the constraint holds if `margin` <= 0.

    `baseline` and `best` are means over the same seeds. Short trainings show early training only.
    """

    evidence: EvidenceKind = "short trainings"
    """Kind of evidence. Without short trainings, `best` is the baseline's quality, because the
    training computes the same."""
    numerical_check: GateEvidence | None = None
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
    """Samples that each short training trained on; of a script, the fewest."""
    until_loss: bool | None = None
    """True if `samples` is the limit, because each training ended at the loss."""
    epochs: float | None = None
    """These samples in epochs; None for a stream without a length."""
    share_of_run: float | None = None
    """Their share of the run of --target-samples or --target-epochs; None without one."""
    smallest_shown: float | None = None
    """Smallest difference that the seeds could have shown: half the width of the interval."""
    seeds: int
    """Seeds that were trained with each of both settings."""
    needs_full_run: bool
    """True if a changed setting can change the course of training: check a full training."""
    split_error: float | None = None
    """Relative difference of the gradients summed over smaller batches, on the same samples.

    None unless the result has the baseline's effective batch in other parts.
    """
    compared_by: str | None = None
    """Quality metric of a script, or the comparison of its gradients, in words.

    None for a model.py. Without it, `autotune run` applies no settings that change rounding.
    """
    not_compared: str | None = None
    """Reason why settings that change a script's training were not tried; None otherwise."""

    @property
    def is_measured(self) -> bool:
        """Return False if no quality was measured."""
        return self.metric != UNCHANGED

    @property
    def not_measured_text(self) -> str:
        """Return the text in place of a quality that was not measured, with the reason."""
        return self.stand_in_text + (f"; {self.not_compared}" if self.not_compared else "")

    @property
    def stand_in_text(self) -> str:
        """Return that text without why no quality could be measured."""
        if self.evidence == "numerical check" and self.compared_by:
            return f"not measured, but compared: {self.compared_by}"
        return NOT_MEASURED

    @property
    def allowed_text(self) -> str:
        """Return the tolerance and what it is."""
        return f"up to {self.tolerance:.3g} worse{(self.allowed and f': {self.allowed}') or ''}"

    @property
    def probe_text(self) -> str:
        """Return what the probes of `best` can tell; empty if there were none."""
        if self.smallest_shown is None:
            return ""
        parts = []
        if self.epochs is not None:
            shown = f"{self.epochs:.2g}"
            of = "1 epoch" if shown == "1" else f"{shown} of an epoch"
            parts.append(f"{shown} epochs" if self.epochs > 1 and shown != "1" else of)
        if self.share_of_run is not None:
            parts.append(f"{100 * self.share_of_run:.2g} % of the run")
        length = f" ({', '.join(parts)})" if parts else ""
        shown = (
            f"smallest detectable difference: {self.smallest_shown:.2g}"
            if self.smallest_shown
            else "the value is the same with every seed, so the smallest difference is unknown"
        )
        each = f"until the loss, at most {self.samples}" if self.until_loss else f"{self.samples}"
        return f"{each} samples each{length}; {shown}"

    @property
    def split_text(self) -> str:
        """Return how the gradients of smaller batches differ; empty if that was not measured."""
        if self.split_error is None:
            return ""
        percent = f"{100 * self.split_error:.2g} %"
        is_more = self.needs_full_run and self.split_error > OF_SPLIT[True]
        cause = "more than rounding, so quality was compared" if is_more else "rounding"
        return (
            f"summed over smaller batches, they differ by {percent} on the same samples ({cause})"
        )

    @property
    def difference_text(self) -> str:
        """Return the difference with its interval and seeds; empty in files without one."""
        if self.difference is None:
            return ""
        if self.evidence == "numerical check":
            return "no short trainings: results differ only by rounding"
        if self.difference_ci90 is None:
            return "no difference: the training is the same"
        if self.seeds == 1:
            return f"difference {self.difference:.3g} on the script's own seed"
        low, high = self.difference_ci90
        return (
            f"difference {self.difference:.3g} ({low:.3g} to {high:.3g}) over the same "
            f"{self.seeds} seeds"
        )


class NotProven(Part):
    """A faster configuration whose quality is inconclusive after its seeds; not recommended."""

    trial: int
    changed: Settings
    """Settings that differ from the baseline's."""
    quality: float
    """Mean quality over the seeds."""
    bound: float | None = None
    """One-sided 95 % bound of the mean quality; None if the seeds do not show it."""
    limit: float
    """Worst allowed mean quality over these seeds."""
    seeds: int
