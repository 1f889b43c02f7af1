"""Gather a sharded model, so that one process can evaluate it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from autotune.knobs.ranks import as_sharded
from autotune.training.ranks.world import World


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
