"""The stages of training in best.yaml: each alone, and the use of the device's arithmetic."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

Pair = tuple[float, float]
Stage = Literal["loading", "copying", "launching", "computing"]


class Part(BaseModel):
    """A part of best.yaml: strict, without unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Stages(Part):
    """Samples per second that each stage of training reaches alone; None if it takes no time."""

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

    @model_serializer(mode="wrap")
    def _without_absent(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Leave out what a CPU does not have."""
        absent = {"launching": self.launching, "busy_share": self.busy_share}
        written: dict[str, object] = write(self)
        return {k: v for k, v in written.items() if v is not None or k not in absent}


class StageLimits(Part):
    """Samples per second of each stage alone at these settings, and the use of the arithmetic.

    A rate alone is None if it was timed below training, which contradicts it. Intervals are of the
    95 % confidence, over rounds of blocks; None with too few rounds, and in older files.
    """

    compute: float | None
    """Samples per second of computing alone, on batches that are on the device already."""
    compute_ci95: Pair | None = None
    loader: float | None
    """Samples per second of loading alone."""
    loader_ci95: Pair | None = None
    flops_per_sample: float | None = None
    """Floating-point operations of a training step for each sample; None if not counted."""
    number_format: str | None = None
    """Format of the step's products: a dtype, or tf32."""
    matmul_flops_per_second: float | None = None
    """Rate that matrix products reached on the machine in that format."""
    mfu: float | None = None
    """Model FLOPs utilisation, 0 to 1: the FLOPs of the best throughput over that rate."""
