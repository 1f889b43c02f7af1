"""The parts of best.yaml on memory, stages, blocks, runs and machine, and the base of all."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    SkipValidation,
    model_serializer,
)

from autotune.knobs.base import Value
from autotune.values.lr_scaling import LrRule
from autotune.values.text import size, span

Pair = tuple[float, float]
# best_config checks the values: it reports one fault where pydantic's union reports three.
Settings = dict[str, Annotated[Value, SkipValidation]]
Stage = Literal["loading", "copying", "launching", "computing"]


class Part(BaseModel):
    """A part of best.yaml; unknown names are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
    left_out_if_none: ClassVar[frozenset[str]] = frozenset()
    """Names of fields that are left out of the file where they are None."""

    @model_serializer(mode="wrap")
    def _without_absent(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        written: dict[str, object] = write(self)
        absent = {name for name in self.left_out_if_none if written.get(name) is None}
        return {name: value for name, value in written.items() if name not in absent}


class DeviceMemoryEvidence(Part):
    """Memory of the accelerator beside the answer, in bytes; see `DeviceMemory`."""

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

    left_out_if_none = frozenset({"baseline", "best"})
    baseline: float | None = None
    """Under the user's settings; None if it did not grow, or would not reach the limit within three
    days or the length of the run."""
    best: float | None = None
    """Under the answer's settings; None as above."""


class MemoryEvidence(Part):
    """Peak memory against its limit; the constraint holds if `margin` <= 0."""

    left_out_if_none = frozenset({"device", "longest_of", "dataset_samples", "growth_per_hour"})
    peak_bytes: int
    limit_bytes: int
    margin: float
    """Peak over limit, less 1."""
    device: DeviceMemoryEvidence | None = None
    """None on a CPU."""
    longest_of: int | None = None
    """Samples that were looked at for the longest, which are in the peak as one batch.

    None if samples are equally long or their lengths cannot be told.
    """
    dataset_samples: int | None = None
    """Samples of the dataset, beside those that were looked at."""
    growth_per_hour: MemoryGrowth | None = None
    """None if memory was not seen to grow."""

    @property
    def in_words(self) -> str:
        """Return the peak, the limit, and on an accelerator the parts of its memory, as text."""
        text = f"{size(self.peak_bytes)} of {size(self.limit_bytes)}"
        if self.longest_of is not None:
            text += f", with the longest of {self.longest_of} of {self.dataset_samples} samples"
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
        own = "" if growth.baseline is None else f"{size(round(growth.baseline))} an hour"
        if growth.best is None:
            return f"; with your settings it grows by {own}"
        left = span(3600 * max(0, self.limit_bytes - self.peak_bytes) / growth.best)
        own = f" ({own} with your settings)" if own and growth.best != growth.baseline else ""
        return (
            f"; it grows by {size(round(growth.best))} an hour{own}, to the limit in {left}: the "
            "training keeps tensors, or fills a cache"
        )


class Stages(Part):
    """Samples per second that each stage of training reaches alone; None if it takes no time.

    They were timed once, before the trials. `samples_per_second` of the confirmation may lie above
    the slowest by the difference of two processes.
    """

    left_out_if_none = frozenset({"launching", "busy_share"})
    bound: Stage
    """Slowest stage."""
    loading: float | None = None
    copying: float | None = None
    """Samples per second of copying; None on a CPU, where nothing is copied."""
    launching: float | None = None
    """Samples per second at which Python launches the kernels of a step; None on a CPU."""
    computing: float | None = None
    busy_share: float | None = None
    """Share of a step in which kernels run on the GPU, 0 to 1; None where that is not known."""
    optimizer_share: float
    """Share of the computing time that the optimizer takes, 0 to 1."""


class NotConfirmed(Part):
    """A configuration that was faster in its trial and could not be probed or timed again."""

    trial: int
    changed: Settings
    """Settings that differ from the baseline's."""
    reason: str


class Arithmetic(Part):
    """The arithmetic of a training step at these settings, and the use of the device's."""

    flops_per_sample: float | None = None
    """Floating-point operations of a training step for each sample; None if not counted."""
    number_format: str | None = None
    """Format of the step's products: a dtype, or tf32."""
    matmul_flops_per_second: float | None = None
    """Rate that matrix products reached on the machine in that format."""
    mfu: float | None = None
    """Model FLOPs utilisation, 0 to 1: the FLOPs of the best throughput over that rate."""


class Steps(Part):
    """Seconds of single training steps; only on a CPU does the clock tell when each has ended."""

    left_out_if_none = frozenset({"remark"})
    median_seconds: float
    p99_seconds: float
    longest_seconds: float
    remark: str | None = None
    """Set if a few slow steps take much of the time."""


class PredictedRun(Part):
    """Predicted seconds of a whole run: the one-time cost plus `samples` at the steady rate."""

    samples: int
    baseline_seconds: float
    best_seconds: float


class Blocks(Part):
    """Number of timed blocks behind the rates, and of those that other programs disturbed."""

    left_out_if_none = frozenset({"gpu_clock_mhz", "gpu_held_back"})
    timed: int
    gpu_clock_mhz: Pair | None = None
    """Median clock of the GPU under the user's settings and under the answer; None if unknown."""
    gpu_held_back: dict[str, int] | None = None
    """Blocks in which something held the GPU's clock back, for each reason; None without any."""
    disturbed: int | None
    """Number of disturbed blocks; None if unknown, as off Linux."""

    @property
    def remark(self) -> str | None:
        """A remark if something held the GPU's clock back; None otherwise."""
        if not self.gpu_held_back:
            return None
        told = ", ".join(f"{reason} in {count}" for reason, count in self.gpu_held_back.items())
        return (
            f"the GPU's clock was held back in timed blocks ({told} of {self.timed}); a longer "
            "training may run at another clock, and more slowly"
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
    """Hash of all facts on the machine; a measurement may not hold where it differs."""


class Searched(Part):
    """The part of the search space that was measured."""

    configurations: int
    """Size of the search space on that machine."""
    measured: int
    """Configurations that were trained and timed, without the baseline."""
    failed: int = 0
    """Configurations that ran out of memory, crashed or hung."""
    tried: dict[str, tuple[Annotated[Value, SkipValidation], ...]]
    """Measured values of each varied knob, the baseline's value included."""
    never_varied: tuple[str, ...]
    """Knobs that have several values in the space, of which only one was measured."""


class LearningRate(Part):
    """Scaling of the learning rates of model.py, in trials and probes alike."""

    rule: LrRule = "none"
    factor: float = 1.0
