"""Formats that the backend of several processes can add up, tried with a real exchange."""

from __future__ import annotations

import math

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from autotune.knobs.ranks import COMM_DTYPE

# Relative; a mean of a few numbers of equal size is rounded by less in bfloat16.
_ROUNDING = 0.05


def comm_dtypes(device: torch.device) -> tuple[str, ...]:
    """Return the formats in which torch's compression hooks average gradients on this backend.

    Every process of the default group has to call it.
    """
    offered = (str(value) for value in COMM_DTYPE.values.options if value is not None)
    return tuple(name for name in offered if _averages(name, device))


def _averages(name: str, device: torch.device) -> bool:
    model = nn.Linear(1, 1, bias=False, device=device)
    ddp = DistributedDataParallel(model, device_ids=None if device.type == "cpu" else [device])
    try:
        COMM_DTYPE.on_ddp(name, ddp)
        # The gradient is the input: 1 on rank 0, 2 on rank 1.
        ddp(torch.full((1, 1), distributed.get_rank() + 1.0, device=device)).sum().backward()
        found = float(model.weight.grad)  # type: ignore[arg-type]
    except (RuntimeError, TypeError, ValueError):
        return False
    return math.isclose(found, (distributed.get_world_size() + 1) / 2, rel_tol=_ROUNDING)
