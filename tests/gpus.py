"""The devices of `tests/gpu`: the CPU everywhere, so that nothing rots unseen, and a GPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from autotune.configuration.job import Job, MeasurePlan, Task
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from covering import NO_GPU
from factories import TINY_CONV

CUDA = "cuda:0"
QUICK = MeasurePlan(warmup_steps=3, block_seconds=0.05, block_counts=(6,), max_seconds=5)

Test = TypeVar("Test", bound=Callable[..., Any])


def on_cuda(*values: Any) -> Any:
    """Values of a parameter for a test on a GPU; skipped where there is none."""
    return pytest.param(*values, marks=_marks())


def cuda_only(why: str) -> Callable[[Test], Test]:
    """Mark a test that means nothing on a CPU, for this reason."""

    def marked(test: Test) -> Test:
        for mark in _marks(why):
            test = mark(test)
        return test

    return marked


def _marks(why: str = "") -> list[pytest.MarkDecorator]:
    reason = f"{NO_GPU}{why and f': {why}'}"
    return [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason=reason)]


def job_on(
    device: str,
    task: Task,
    model: Path = TINY_CONV,
    memory_limit_bytes: int | None = None,
    **settings: Value,
) -> Job:
    """A short job; settings over one thread and batches of eight."""
    config = TrainingConfig.of({"batch_size": 8, "num_threads": 1, **settings})
    return Job(task, device, str(model), config.as_dict(), memory_limit_bytes=memory_limit_bytes)
