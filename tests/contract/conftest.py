"""The tiny workload, loaded; and the state of this process, restored after each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from autotune.training.workload import Workload, load_workload


@pytest.fixture
def workload(tiny_conv_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, tiny_conv_path.stem, None)
    return load_workload(tiny_conv_path)


@pytest.fixture(autouse=True)
def _process_state() -> Iterator[None]:
    threads = torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    benchmark = torch.backends.cudnn.benchmark
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = benchmark
    # What one test compiled must not count as compiled for the next.
    torch._dynamo.reset()
    counters.clear()
