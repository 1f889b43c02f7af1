"""Time products of square matrices: the rate of arithmetic that a device reaches in a format."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from autotune.training.timing import synchronize

# Sizes double from the first to the last, or until a product takes so many seconds.
_FIRST_SIZE, _LAST_SIZE, _LONG_SECONDS = 256, 8192, 5e-3
_BLOCKS, _BLOCK_SECONDS = 5, 0.01
_TRIED, _VERY_LONG_SECONDS = 3, 0.1
# Formats in which float32 is multiplied, and PyTorch's words for their precision.
_INNER = {"float32": "ieee", "tf32": "tf32", "float32 (bf16)": "bf16"}


def matmul_rate(device: torch.device, number_format: str) -> float | None:
    """Return the FLOP/s of the fastest matrix product; None if the format has none here.

    The best of several blocks and sizes counts, because it is what the device can reach. Memory for
    three matrices suffices; larger ones are left out if there is none.

    Args:
        device: the device that multiplies; on a CPU with the threads of the process.
        number_format: see `autotune.limits.flops.Counted`.
    """
    inner = _INNER.get(number_format)
    dtype = torch.float32 if inner else getattr(torch, number_format)
    size, best = _FIRST_SIZE, 0.0
    with _precision(device, inner), torch.no_grad():
        while size <= _LAST_SIZE:
            try:
                seconds = _seconds(size, dtype, device)
            except RuntimeError:  # no memory, or no product of this format
                break
            best = max(best, 2 * size**3 / seconds)
            if seconds > _LONG_SECONDS:
                break
            size *= 2
    return best or None


def _seconds(size: int, dtype: torch.dtype, device: torch.device) -> float:
    """Return the seconds of a product: the least mean over a block of them."""
    # Explicit, because the user's file may have changed the default dtype.
    plain = [torch.randn(size, size, device=device, dtype=torch.float32) for _ in range(2)]
    left, right = (matrix.to(dtype) for matrix in plain)
    out = torch.empty_like(left)

    def mean(products: int) -> float:
        synchronize(device)
        start = time.perf_counter()
        for _ in range(products):
            torch.mm(left, right, out=out)
        synchronize(device)
        return (time.perf_counter() - start) / products

    mean(1)  # the first one loads the library
    once = max(1e-9, min(mean(1) for _ in range(_TRIED)))
    if once > _VERY_LONG_SECONDS:  # the format is emulated: more products would take too long
        return once
    products = math.ceil(_BLOCK_SECONDS / once)
    return max(1e-9, min(mean(products) for _ in range(_BLOCKS)))


@contextmanager
def _precision(device: torch.device, inner: str | None) -> Iterator[None]:
    """Multiply float32 in this precision within the block; None leaves it as it is."""
    if inner is None or device.type not in {"cpu", "cuda"}:
        yield
        return
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    backend = backend.matmul
    before = backend.fp32_precision
    backend.fp32_precision = inner
    try:
        yield
    finally:
        backend.fp32_precision = before
