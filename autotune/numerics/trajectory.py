"""Compare the first training steps from given weights by the weights and buffers after them.

One update does not show the state that an optimizer keeps between steps, nor how compiled code
behaves once the parameters have moved. A few whole steps do: the weights add up all of them.
"""

from __future__ import annotations

import copy
import math
import os
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.torch_private import map_leaves
from autotune.training.quality import NonFiniteLossError
from autotune.training.training_setup import TrainingSetup, seed_everything

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
            self._file.write(flat.view(torch.uint8).numpy().data)
            self._file.flush()
        except (OSError, RuntimeError, TypeError):  # disk full, or no access to the tensor's bytes
            in_memory = dense.clone()
            return in_memory.clone
        return partial(self._read, place, dense.dtype, dense.shape, dense.stride())

    def put_all(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store the tensors of a mapping in the file; other values are copied in memory."""
        loads = {
            name: self.put(value) if isinstance(value, Tensor) else partial(copy.deepcopy, value)
            for name, value in values.items()
        }
        return _Stored(loads)

    def put_batch(self, batch: Any) -> Load:
        """Store a nested batch; parts that are not plain CPU tensors stay in memory."""
        loads = map_leaves(lambda leaf: self.put(leaf) if _is_plain(leaf) else lambda: leaf, batch)
        return lambda: map_leaves(lambda load: load(), loads)

    def _read(
        self, place: int, dtype: torch.dtype, shape: torch.Size, stride: tuple[int, ...]
    ) -> Tensor:
        self._file.seek(place)
        read = np.fromfile(self._file, np.uint8, shape.numel() * dtype.itemsize)
        dense = torch.from_numpy(read).view(dtype).view(shape)
        if dense.stride() == stride or 0 in stride:
            return dense
        return torch.empty_strided(shape, stride, dtype=dtype).copy_(dense)


class _Stored(UserDict[str, Any]):
    """A mapping of `Load`s that loads a value each time it is read."""

    def __getitem__(self, name: str) -> Any:
        return self.data[name]()


def _is_plain(leaf: Any) -> bool:
    return (
        type(leaf) is Tensor
        and leaf.layout is torch.strided
        and leaf.device.type == "cpu"
        and not leaf.requires_grad
        and not leaf.is_complex()
    )


Tensors = Mapping[str, Tensor]

STEPS = 8
"""Steps to compare.

A fault in an optimizer's state shows from the second step on. Of a rate that is wrong from then on,
n steps show the share (n - 1) / n: eight show 88 %, ten would show 90 %.
"""


@dataclass(frozen=True)
class Snapshot:
    """Parameters and floating-point buffers at one time."""

    weights: Tensors
    buffers: Tensors


@dataclass(frozen=True)
class Distances:
    """Distances of two trajectories from one start, relative to the length of the first one.

    The length of a trajectory is the distance from its first to its last values.
    """

    path: float
    """Distance between the last weights of both."""
    reach: float
    """Difference of the lengths: rounding turns a trajectory, but hardly shortens it."""
    buffers: float
    """Distance between the last buffers of both, relative to how far the first ones moved."""


def steps(setup: TrainingSetup, batches: Iterable[Load], seed: int, store: DiskStore) -> Snapshot:
    """Take the steps and return the weights and buffers at their end.

    Side effect: changes model and optimizer.

    Raises:
        NonFiniteLossError: a loss or a weight is not finite, or gradients overflow at every scale.
    """
    # A seed for each step: equal steps draw equal numbers, whatever came before them.
    for step_seed, batch in zip(range(seed, seed + STEPS), batches, strict=False):
        _step(setup, step_seed, batch)
    end = snapshot(setup, store)
    if not math.isfinite(norm(end.weights)):  # which no loss has shown yet
        raise NonFiniteLossError("a weight after the first steps is not finite")
    return end


def _step(setup: TrainingSetup, seed: int, load: Load) -> None:
    """Take a step on a batch; repeat it while the scaler skips it to lower its scale."""
    batch = load()
    while (scale := setup.scaler.get_scale()) >= 1:
        seed_everything(seed)
        loss = float(setup.step(iter((batch,)), 1))
        if not math.isfinite(loss):
            raise NonFiniteLossError(f"the loss of the first steps becomes {loss}")
        if setup.scaler.get_scale() >= scale:
            return
    raise NonFiniteLossError("a gradient of the first steps is not finite")


def distances(start: Snapshot, end: Snapshot, other: Snapshot) -> Distances:
    """Return the distances of two trajectories from `start`, one to `end`, one to `other`."""
    length, other_length = (distance(far.weights, start.weights) for far in (end, other))
    return Distances(
        path=share(distance(other.weights, end.weights), length),
        reach=share(abs(other_length - length), length),
        buffers=share(distance(other.buffers, end.buffers), distance(end.buffers, start.buffers)),
    )


def nudge(parameters: Iterable[Tensor], rounding: float, seed: int = 0) -> None:
    """Change the parameters at random by a relative `rounding`, by their format's at least.

    Only this process's shard of a sharded parameter changes.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for whole in filter(torch.is_floating_point, parameters):
            parameter = whole.to_local() if hasattr(whole, "to_local") else whole
            least = max(rounding, torch.finfo(parameter.dtype).eps)
            noise = torch.rand(parameter.shape, generator=generator, dtype=torch.float64) * 2 - 1
            parameter.mul_((1 + least * noise).to(parameter))


def epsilon(config: TrainingConfig) -> float:
    """Return the machine epsilon of the shortest number format that `config` may compute in.

    It is that of TF32 and float16 at least: accelerators shorten convolutions by default, and other
    algorithms for a convolution in float32 err as much.
    """
    formats = (config["amp_dtype"], config["ddp_comm_dtype"])
    short = "bfloat16" in formats or config["float32_matmul_precision"] == "medium"
    return torch.finfo(torch.bfloat16 if short else torch.float16).eps


def snapshot(setup: TrainingSetup, store: DiskStore) -> Snapshot:
    """Store copies of the model's parameters and of its floating-point buffers."""
    buffers = {n: b for n, b in setup.model.named_buffers() if b.is_floating_point()}
    return Snapshot(store.put_all(dict(setup.model.named_parameters())), store.put_all(buffers))


def distance(one: Tensors, other: Tensors) -> float:
    """Return the L2 norm of the difference, in float64; a tensor missing on one side is zero."""
    zero = torch.zeros(())
    names = (name for name in {**dict.fromkeys(one), **dict.fromkeys(other)})
    return math.hypot(
        *(float((one.get(n, zero).double() - other.get(n, zero)).norm()) for n in names)
    )


def norm(tensors: Tensors) -> float:
    """Return the L2 norm of all tensors at once, in float64."""
    return math.hypot(*(float(tensor.double().norm()) for tensor in tensors.values()))


def share(part: float, whole: float) -> float:
    """Return part / whole; if `whole` is 0, return 1 for a positive `part`, else 0."""
    return part / whole if whole else float(part > 0)
