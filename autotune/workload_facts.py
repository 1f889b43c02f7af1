"""What is known of a workload without training it: decides which knobs can matter."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """Read off the user's model.py by a child that built it once."""

    dataset_samples: int | None
    """len(dataset); None for an iterable dataset without a length."""
    image_batches: bool
    """Batches hold 4-D tensors and the model has 4-D weights: channels_last means something."""
    optimizer_options: bool
    """build_optimizer is absent or takes options such as fused=True."""
    has_evaluate: bool
    baseline: dict[str, bool | int | str | None]
    """The workload's BASELINE, with what the file sets for the process when it is imported."""
    model_parameters: int
    sample_bytes: int = 0
    """Bytes of the tensors of one sample, once collated."""
    local_modules: dict[str, str] = field(default_factory=dict)
    """What the file imports from its own folder: path below that to the SHA-256 of its bytes."""
