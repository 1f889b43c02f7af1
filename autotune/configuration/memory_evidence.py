"""The parts of best.yaml on memory, and the base of all its parts."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from autotune.values.text import size


class Part(BaseModel):
    """A part of best.yaml; unknown names are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
    of_accelerators: ClassVar[frozenset[str]] = frozenset()
    """Names of fields that are left out of the file where they are None, as on a CPU."""

    @model_serializer(mode="wrap")
    def _without_absent(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        written: dict[str, object] = write(self)
        absent = {name for name in self.of_accelerators if written.get(name) is None}
        return {name: value for name, value in written.items() if name not in absent}


class DeviceMemoryEvidence(Part):
    """Memory of the accelerator beside the answer, in bytes; see `DeviceMemory`."""

    total: int
    free: int
    reserved: int
    allocated: int
    context: int


class MemoryEvidence(Part):
    """Peak memory against its limit; the constraint holds if `margin` <= 0."""

    of_accelerators = frozenset({"device"})
    peak_bytes: int
    limit_bytes: int
    margin: float
    device: DeviceMemoryEvidence | None = None
    """None on a CPU and in older files."""

    @property
    def in_words(self) -> str:
        """Return the peak, the limit, and on an accelerator the parts of its memory, as text."""
        text = f"{size(self.peak_bytes)} of {size(self.limit_bytes)}"
        if self.device is None:
            return text
        own = self.device
        return (
            f"{text} (tensors {size(own.allocated)}, outside the allocator {size(own.context)}, "
            f"free {size(own.free)})"
        )
