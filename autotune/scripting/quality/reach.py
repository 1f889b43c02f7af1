"""Measure a script's first steps: their gradients, and how far they move the parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_ENTRIES = 4096
"""Entries that are kept of a parameter, evenly spaced: a copy of a model may not fit."""
_SUMS = 32
"""Sums that tell the gradients of all parameters."""
# No script's own seed, whose random numbers its weights would share.
_SEED = 982_451_653


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


def sums_of_gradients(parameters: Iterable[Tensor]) -> tuple[float, ...]:
    """Return sums of the kept entries of all gradients, with random weights of variance 1.

    The weights are always the same. The distance of the sums of two gradients, relative to their
    size, estimates the relative difference of the gradients (Johnson and Lindenstrauss, 1984).
    Empty where a gradient is sparse.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients or any(one.layout != torch.strided for one in gradients):
        return ()
    drawn, kept = torch.Generator().manual_seed(_SEED), map(_some, gradients)
    weights = torch.randn(_SUMS, 2 * _ENTRIES, generator=drawn)
    sums = [(weights[:, : len(one)].to(one.device) @ one).cpu() for one in kept]
    # Of each gradient with signs of its own, so that those of two do not hide each other.
    signs = torch.randint(0, 2, (len(sums), _SUMS), generator=drawn) * 2 - 1
    return tuple((torch.stack(sums) * signs).sum(dim=0).tolist())


def _some(parameter: Tensor) -> Tensor:
    """Return a copy of evenly spaced entries in float32; of a sharded parameter, of its shard."""
    local = parameter.detach()
    if hasattr(local, "to_local"):
        local = local.to_local()
    step = max(1, local.numel() // _ENTRIES)
    return local.reshape(-1)[::step].to(torch.float32, copy=True)
