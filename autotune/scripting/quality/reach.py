"""Measure the distances by which a script's first steps move its parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_ENTRIES = 4096
"""Entries that are kept of a parameter, evenly spaced: a copy of a model may not fit."""


class Reach:
    """Distances that parameters move from now on, until `end` is called."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        # Quantized weights, which are frozen, may be no plain tensors.
        self._parameters = [one for one in parameters if one.requires_grad]
        self._before = [_some(parameter) for parameter in self._parameters]
        self.lengths: tuple[float, ...] = ()
        """L2 norm of the change of each parameter's kept entries; empty before the end."""

    def end(self) -> None:
        """Measure the distances, and free what was kept."""
        pairs = zip(self._parameters, self._before, strict=True)
        self.lengths = tuple(float((_some(now) - before).norm()) for now, before in pairs)
        self._parameters, self._before = [], []


def _some(parameter: Tensor) -> Tensor:
    """Return a copy of evenly spaced entries in float32; of a sharded parameter, of its shard."""
    local = parameter.detach()
    if hasattr(local, "to_local"):
        local = local.to_local()
    step = max(1, local.numel() // _ENTRIES)
    return local.reshape(-1)[::step].to(torch.float32, copy=True)
