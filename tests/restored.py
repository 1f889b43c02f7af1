"""The state of the test's own process, put back after settings were applied to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._dynamo.utils import counters

from autotune.knobs import KNOBS


@contextmanager
def process_state() -> Iterator[None]:
    """Restore threads, precision, kernels and the like, and forget what was compiled."""
    threads = torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    benchmark = torch.backends.cudnn.benchmark
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    yield
    torch.use_deterministic_algorithms(False)
    if workspace is None:
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = benchmark
    for name in ("sdpa_backend", "fill_uninitialized_memory", "gc", "merge_param_groups"):
        KNOBS[name].on_process(KNOBS[name].default)
    KNOBS["activation_memory_budget"].on_process(1.0)
    # What one test compiled must not count as compiled for the next.
    torch._dynamo.reset()
    counters.clear()
