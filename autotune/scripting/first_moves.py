"""Measure a script's first steps: their gradients, and how far they move the parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

_ENTRIES = 4096
"""Entries that are kept of a parameter, evenly spaced: a copy of a model may not fit."""
_SUMS = 32
"""Sums that tell the tensors of all parameters."""
# No script's own seed, whose random numbers its weights would share.
_SEED = 982_451_653
_CPU = torch.device("cpu")


class Moves:
    """Distances that parameters move from now on, until `end` is called."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        # Quantized weights, which are frozen, may be no plain tensors.
        self._parameters = [one for one in parameters if one.requires_grad]
        self._before = [_some(parameter) for parameter in self._parameters]
        self.lengths: tuple[float, ...] = ()
        """L2 norm of the change of each parameter's kept entries; empty before the end."""

    def end(self) -> None:
        """Measure the distances, and free what was kept."""
        self.lengths = tuple(float(moved.norm()) for moved in self._moves())
        self._parameters, self._before = [], []

    def sums(self) -> tuple[float, ...]:
        """Return sums that tell the moves so far; see `sums_of_gradients`."""
        return _sums(self._moves())

    def _moves(self) -> list[Tensor]:
        pairs = zip(self._parameters, self._before, strict=True)
        return [_some(now) - before for now, before in pairs]


def sums_of_gradients(parameters: Iterable[Tensor]) -> tuple[float, ...]:
    """Return sums of the kept entries of all gradients, with random weights of variance 1.

    The weights are always the same. The distance of the sums of two gradients, relative to their
    size, estimates the relative difference of the gradients (Johnson and Lindenstrauss, 1984).
    Empty where a gradient is sparse or not finite, or where more than half of them are zero, as
    behind a last layer that begins with zeros.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if any(one.layout != torch.strided for one in gradients):
        return ()
    return _sums([_some(one) for one in gradients])


def _sums(kept: Sequence[Tensor]) -> tuple[float, ...]:
    if not kept or 2 * sum(not one.any() for one in kept) > len(kept):
        return ()
    # A script may set other defaults, and step under autocast, which shortens matrix products.
    drawn = torch.Generator(_CPU).manual_seed(_SEED)
    shape = (_SUMS, 2 * _ENTRIES)
    weights = torch.randn(shape, generator=drawn, device=_CPU, dtype=torch.float32)
    on = {one.device: weights.to(one.device) for one in kept}
    sums = [(on[one.device][:, : len(one)] * one).sum(dim=1).to(_CPU) for one in kept]
    # Of each tensor with signs of its own, so that those of two do not hide each other.
    signs = torch.randint(0, 2, (len(sums), _SUMS), generator=drawn, device=_CPU) * 2 - 1
    found = tuple((torch.stack(sums) * signs).sum(dim=0).tolist())
    return found if all(map(math.isfinite, found)) else ()


def _some(parameter: Tensor) -> Tensor:
    """Return a copy of evenly spaced entries in float32; of a sharded parameter, of its shard."""
    local = parameter.detach()
    if hasattr(local, "to_local"):
        local = local.to_local()
    step = max(1, local.numel() // _ENTRIES)
    # Else they would be one column of a matrix, or one place of all kernels.
    while math.gcd(step, local.numel()) > 1:
        step += 1
    return local.reshape(-1)[::step].to(torch.float32, copy=True)
