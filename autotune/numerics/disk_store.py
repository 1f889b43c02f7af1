"""Tensors in a file instead of in memory, for comparisons that need many copies of a model.

The callers open a file without a name, so nothing is left of it however the process ends.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO, Any

import torch
from torch import Tensor

from autotune.knobs.torch_private import map_leaves

Load = Callable[[], Any]
"""Function that reads a stored tensor or batch and returns a new copy each time."""


class DiskStore:
    """A store that appends tensors to an open binary file and reads them back one at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def put(self, tensor: Tensor) -> Load:
        """Store a tensor's present values, in memory if the disk is full.

        The tensor is read back on the CPU, a sparse one as a dense one.
        """
        dense = tensor.detach()
        dense = (dense if dense.layout is torch.strided else dense.to_dense()).cpu()
        flat = dense.contiguous().reshape(-1)
        try:
            place = self._file.seek(0, os.SEEK_END)
            if flat.numel():
                self._file.write(flat.view(torch.uint8).numpy().data)
            self._file.flush()
        except (OSError, RuntimeError, TypeError):  # disk full, or no access to the tensor's bytes
            in_memory = dense.clone()
            return in_memory.clone
        return partial(self._read, place, dense.dtype, dense.shape, dense.stride())

    def put_all(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store the tensors of a mapping in the file; other values are copied in memory."""
        return _Stored({name: self._put_any(value) for name, value in values.items()})

    def put_batch(self, batch: Any) -> Load:
        """Store a nested batch; parts that are not plain CPU tensors stay in memory."""
        stored = map_leaves(lambda leaf: _Place(self.put(leaf)) if _is_plain(leaf) else leaf, batch)
        return lambda: map_leaves(
            lambda leaf: leaf.load() if type(leaf) is _Place else leaf, stored
        )

    def _put_any(self, value: Any) -> Load:
        return self.put(value) if isinstance(value, Tensor) else partial(copy.deepcopy, value)

    def _read(
        self, place: int, dtype: torch.dtype, shape: torch.Size, stride: tuple[int, ...]
    ) -> Tensor:
        flat = torch.empty(shape.numel(), dtype=dtype)
        if flat.numel():
            self._file.seek(place)
            buffer = flat.view(torch.uint8).numpy()
            read = 0
            while read < len(buffer):
                count = self._file.readinto(buffer[read:])  # type: ignore[attr-defined]
                if not count:
                    raise OSError("the file in which tensors are kept ends too early")
                read += count
        dense = flat.view(shape)
        if dense.stride() == stride or 0 in stride:
            return dense
        return torch.empty_strided(shape, stride, dtype=dtype).copy_(dense)


class _Place:
    """A placeholder in a batch for a tensor in the file."""

    def __init__(self, load: Load) -> None:
        self.load = load


class _Stored(Mapping[str, Any]):
    """A mapping that loads a value each time it is read."""

    def __init__(self, loads: Mapping[str, Load]) -> None:
        self._loads = loads

    def __getitem__(self, name: str) -> Any:
        return self._loads[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._loads

    def __iter__(self) -> Iterator[str]:
        return iter(self._loads)

    def __len__(self) -> int:
        return len(self._loads)


def _is_plain(leaf: Any) -> bool:
    return (
        type(leaf) is Tensor
        and leaf.layout is torch.strided
        and leaf.device.type == "cpu"
        and not leaf.requires_grad
        and not leaf.is_complex()
    )
