"""Knobs that `benchmarks.knobs` turns, one value at a time, and the table that it makes of them.

A turn is a knob with a value, against the same settings without it. A knob that needs another one
is turned with that one on, on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.base import Value, spelled
from autotune.values.outcome import Inspected


@dataclass(frozen=True)
class Turn:
    """A knob and a value that it is turned to."""

    knob: str
    value: Value
    beside: Mapping[str, Value] = field(default_factory=dict, hash=False)
    """Settings of both sides."""
    batch: float = 1.0
    """Factor on the batch size of the side on which the knob is turned."""
    frees_memory: bool = False
    """True: that side has the largest batch that needs no more memory than the other side."""
    on_gpu: bool = False
    """True if only a GPU can tell the value's worth."""
    is_dear: bool = False
    """True if the value is turned only where it is asked for."""

    @property
    def label(self) -> str:
        """The row of the table."""
        if self.knob == "batch_size":
            return f"batch_size x {self.batch:g}"
        halved = f" and batch_size x {self.batch:g}" if self.batch != 1 else ""
        beside = ", ".join(f"{name}={spelled(value)}" for name, value in self.beside.items())
        return f"{self.knob}={spelled(self.value)}{halved}{beside and f', with {beside}'}"

    def is_asked(self, words: Sequence[str]) -> bool:
        """Return whether words, each a knob or knob=value, ask for it; none ask for cheap ones."""
        own = {self.knob, f"{self.knob}={spelled(self.value)}"}
        return bool(own & set(words)) if words else not self.is_dear

    def sides(
        self, own: TrainingConfig, batch: float | None = None
    ) -> tuple[TrainingConfig, TrainingConfig]:
        """Return the settings without and with the turn; `batch` overrides its factor."""
        reference = own.replace(**self.beside)
        size = int(int(reference["batch_size"] or 1) * (self.batch if batch is None else batch))
        turned = {} if self.knob == "batch_size" else {self.knob: self.value}
        return reference, reference.replace(**{"batch_size": size, **turned})

    def obstacle(self, inspected: Inspected) -> tuple[str, bool]:
        """Return why it cannot be turned here, and whether a GPU could tell; empty if it can."""
        machine, facts = inspected.machine, inspected.workload
        assert facts is not None
        asked = {**self.beside, **({} if self.knob == "batch_size" else {self.knob: self.value})}
        for name in asked:
            if reason := KNOBS[name].irrelevance(facts):
                return reason, False
        for name, value in asked.items():
            if reason := KNOBS[name].obstacle(value, machine):
                return reason, self.on_gpu
        own = TrainingConfig.of(facts.baseline).resolved(machine)
        reference, turned = (side.resolved(machine) for side in self.sides(own))
        return ("the study has it already" if reference == turned else ""), False


_WORKERS = {"num_workers": 2}
_COMPILED = {"compile_mode": "default"}
TURNS = (
    Turn("batch_size", None, batch=2.0),
    Turn("num_workers", 1),
    Turn("num_workers", 2),
    Turn("prefetch_factor", 4, _WORKERS),
    Turn("persistent_workers", True, _WORKERS),
    Turn("in_order", False, _WORKERS),
    Turn("pin_memory", True, on_gpu=True),
    Turn("amp_dtype", "bfloat16"),
    Turn("amp_dtype", "float16", on_gpu=True),
    Turn("float32_matmul_precision", "medium"),
    Turn("float32_matmul_precision", "high", on_gpu=True),
    Turn("deterministic", True),
    Turn("compile_mode", "default"),
    Turn("compile_mode", "lite", is_dear=True),
    Turn("compile_mode", "max-autotune-no-cudagraphs", is_dear=True),
    Turn("compile_mode", "reduce-overhead", on_gpu=True),
    Turn("compile_mode", "max-autotune", on_gpu=True),
    Turn("compile_dynamic", True, _COMPILED),
    Turn("compile_dynamic", False, _COMPILED),
    Turn("compile_scope", "blocks", _COMPILED),
    Turn("channels_last", True),
    Turn("cudnn_benchmark", True, on_gpu=True),
    Turn("accumulation_steps", 2, batch=0.5),
    Turn("optimizer_impl", "foreach"),
    Turn("optimizer_impl", "fused"),
    Turn("optimizer_impl", "forloop"),
    Turn("sdpa_backend", "flash"),
    Turn("sdpa_backend", "math"),
    Turn("sdpa_backend", "efficient", on_gpu=True),
    Turn("sdpa_backend", "cudnn", on_gpu=True),
    Turn("activation_checkpointing", True, {"batch_size": 128}, frees_memory=True),
    Turn("num_threads", 1),
    Turn("cpu_allocator", "jemalloc"),
    Turn("cpu_allocator", "tcmalloc"),
)
