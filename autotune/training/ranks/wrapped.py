"""A model that several processes train, wrapped by DistributedDataParallel or sharded."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeGuard

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from autotune.knobs.ranks import as_sharded
from autotune.training.ranks.world import World


@contextmanager
def without_exchange(trained: nn.Module) -> Iterator[None]:
    """Do not exchange the gradients of the backward passes inside, but add them up.

    A sharded model keeps them whole until they are exchanged. A static graph exchanges those of
    the first pass: DistributedDataParallel fails otherwise.
    """
    if (shards := as_sharded(trained)) is None:
        with trained.no_sync() if _may_keep(trained) else nullcontext():
            yield
        return
    shards.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        shards.set_requires_gradient_sync(True)


_begun: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()


def _may_keep(trained: nn.Module) -> TypeGuard[DistributedDataParallel]:
    """Return True for a DistributedDataParallel that may keep gradients to itself."""
    if not isinstance(trained, DistributedDataParallel):
        return False
    is_first = trained.static_graph and trained not in _begun
    _begun.add(trained)
    return not is_first


def gathered(
    model: nn.Module, build: Callable[[], nn.Module], device: torch.device, world: World
) -> nn.Module:
    """Return on rank 0 the whole model of a sharded one; elsewhere, and unsharded, `model` itself.

    The whole one is built anew, so that evaluating it calls for no other process. Every process has
    to call this.

    Args:
        model: the model in training.
        build: returns another model of the same kind, on the CPU.
        device: the device that it is evaluated on.
        world: the processes that share `model` out.
    """
    if as_sharded(model) is None:
        return model
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    # Rank 0 alone gets it, on its CPU.
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if world.rank:
        return model
    whole = build().to(device)
    whole.load_state_dict(state)
    return whole
