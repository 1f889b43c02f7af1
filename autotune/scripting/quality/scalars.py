"""Keep many numbers of a training, each a tensor, without a wait and without a tensor for each."""

from __future__ import annotations

from array import array

import torch
from torch import Tensor

from autotune.training.timing import synchronize

_SLOTS = 1024


class Scalars:
    """Numbers in the order in which they came, those of a device in memory of that device."""

    def __init__(self) -> None:
        self._values = array("d")
        self._chunks: list[Tensor] = []
        """Tensors of 1024 numbers each, on devices."""
        self._used = 0
        # Of each number on a device: its index in `_values`, and its slot, counted over all chunks.
        self._indices, self._slots = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._values)

    def append(self, number: Tensor) -> None:
        """Add the number in a tensor of one element, which may be overwritten afterwards."""
        if number.is_cpu:
            self._values.append(number.item())
            return
        if not self._chunks or self._used == _SLOTS or self._chunks[-1].device != number.device:
            self._chunks.append(torch.empty(_SLOTS, dtype=torch.float32, device=number.device))
            self._used = 0
        self._chunks[-1][self._used].copy_(number.detach().reshape(()))
        self._indices.append(len(self._values))
        self._slots.append(_SLOTS * (len(self._chunks) - 1) + self._used)
        self._used += 1
        self._values.append(float("nan"))

    def values(self) -> list[float]:
        """Return the numbers so far; waits for the devices.

        Raises:
            RuntimeError: a device has failed.
        """
        for device in {chunk.device for chunk in self._chunks}:
            synchronize(device)
        values, kept = self._values.tolist(), [chunk.tolist() for chunk in self._chunks]
        for index, slot in zip(self._indices, self._slots, strict=True):
            values[index] = kept[slot // _SLOTS][slot % _SLOTS]
        return values
