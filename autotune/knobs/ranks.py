"""Knobs of several processes: how they exchange gradients, and whether they share out the model."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from autotune.knobs.base import Integers, Knob, OneOf, Setup, Value
from autotune.knobs.compile import repeated_blocks
from autotune.knobs.torch_private import comm_hooks, reshards_after_forward
from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed.fsdp import FSDPModule
    from torch.nn.parallel import DistributedDataParallel

ALONE = "one process trains alone"
"""Reason why knobs of several processes stay as they are."""
_DDP = (
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
)
_MIB = 1 << 20
COMM_HOOKS = {"bfloat16": "bf16_compress_hook", "float16": "fp16_compress_hook"}
"""Name of torch's compression hook for each number format."""
_SHARDED = "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"
_OF_MODEL_PY = "it changes the parameters and the checkpoints; a model.py can have it"


class DdpKnob(Knob):
    """A setting of DistributedDataParallel, which a sharded model does without."""

    needs: ClassVar[str | None] = "sharding"
    of_ranks = True
    source: ClassVar[str] = _DDP
    argument: ClassVar[str] = ""
    """Argument of DistributedDataParallel that has it, and attribute that has it; "" for none."""

    def has_effect(self, needed: Value) -> bool:
        return needed is None

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        return ALONE if facts.comm_dtypes is None else None

    def stays(self, setup: Setup) -> str:
        # Others are a promise about the model.
        return "" if self.argument and self.effect == "exact" else super().stays(setup)

    def read_back(self, setup: Setup) -> Value:
        return self.default if setup.ddp is None else self.read_ddp(setup.ddp)

    def read_ddp(self, ddp: DistributedDataParallel) -> Value:
        """Return the present value in the wrapper of the model."""
        return bool(getattr(ddp, self.argument))

    def ddp_kwargs(self, value: Value) -> Mapping[str, Any]:
        return {self.argument: value} if self.argument and value != self.default else {}


class DdpBucketMb(DdpKnob):
    """Size of the buckets in which gradients are exchanged."""

    name = "ddp_bucket_mb"
    argument = "bucket_cap_mb"
    default = None
    values = Integers(1, 4096, nullable=True)
    summary = (
        "MiB of gradients in one all-reduce; null is PyTorch's choice: 25, and 1 for "
        "those that are ready first."
    )
    pays = (
        "Larger: fewer exchanges, if each has a fixed cost. Smaller: the first begins sooner and "
        "overlaps more of the backward pass."
    )
    hurts = (
        "A bucket of all gradients waits for the last of them; tiny ones pay the fixed cost often."
    )
    call = "DistributedDataParallel(model, bucket_cap_mb=...)"

    def suggestions(self, machine: Machine) -> tuple[Value, ...]:
        # 25 is not the default: with it the first bucket is no smaller than the others.
        return (None, 5, 50, 100, 250)

    def read_ddp(self, ddp: DistributedDataParallel) -> Value:
        return None if ddp.bucket_bytes_cap_default else int(ddp.bucket_bytes_cap) // _MIB


class GradientAsBucketView(DdpKnob):
    """Gradients as views of the buckets that are exchanged."""

    name = argument = "gradient_as_bucket_view"
    default = False
    idle = False
    values = OneOf((False, True))
    summary = "Let gradients be views of the buckets that are exchanged, not copies of them."
    pays = "Saves the memory of all gradients once, and copying them in every step."
    hurts = "Code that detaches gradients in place fails."
    call = "DistributedDataParallel(model, gradient_as_bucket_view=...)"


class DdpCommDtype(DdpKnob):
    """Number format in which gradients are exchanged, by torch's own compression hooks."""

    name = "ddp_comm_dtype"
    default = None
    values: OneOf = OneOf((None, *COMM_HOOKS))
    effect = "numerics"
    summary = "Number format of the gradient all-reduce; null is that of the parameters."
    pays = "When the gradient all-reduce limits a step: half as many bytes."
    hurts = "Rounds the gradients; small ones vanish in float16. Converting them takes time too."
    call = "ddp.register_comm_hook(None, default_hooks.bf16_compress_hook), or fp16_compress_hook"
    source = "https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html"

    def exclusion(self, value: Value, facts: WorkloadFacts) -> str | None:
        if value is None or facts.comm_dtypes is None or value in facts.comm_dtypes:
            return None
        return f"the processes cannot add up gradients in {value}"

    def on_ddp(self, value: Value, ddp: DistributedDataParallel) -> None:
        if value is not None:
            ddp.register_comm_hook(None, _hook(str(value)))

    def read_ddp(self, ddp: DistributedDataParallel) -> Value:
        found = comm_hooks(ddp)
        if not found:
            return None
        # A hook of the user's own is no value of this knob.
        names = [name for name in COMM_HOOKS if found == [_hook(name)]]
        return names[0] if names else "another hook"


def _hook(number_format: str) -> Any:
    """Return torch's compression hook of a number format."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    return getattr(default_hooks, COMM_HOOKS[number_format])


class Sharding(Knob):
    """Parameters, gradients and optimizer state in full in each process, or shared out."""

    name = "sharding"
    default = None
    values = OneOf((None, "fsdp"))
    # Buffers, such as BatchNorm's, are each process's own.
    effect = "statistics"
    of_ranks = True
    script_obstacle = _OF_MODEL_PY
    summary = (
        "null: each process has the whole model (DistributedDataParallel). fsdp: each has a part "
        "of the parameters, gradients and optimizer state (FSDP2), gathered block by block."
    )
    pays = "When memory limits the batch size: the freed memory permits a larger one."
    hurts = "Half as much again is exchanged, and blocks wait for it. Checkpoints hold shards."
    call = "for block in model.blocks: fully_shard(block); fully_shard(model)"
    source = _SHARDED

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        return ALONE if facts.comm_dtypes is None else None

    def read_back(self, setup: Setup) -> Value:
        return None if as_sharded(setup.model) is None else "fsdp"


class ReshardAfterForward(Knob):
    """Freeing of gathered parameters between the forward and the backward pass."""

    name = "reshard_after_forward"
    default = True
    idle = True
    values = OneOf((True, False))
    needs = "sharding"
    of_ranks = True
    script_obstacle = _OF_MODEL_PY
    summary = "Free a block's gathered parameters after its forward pass, and gather them again."
    pays = "false: parameters are gathered once a step, not twice."
    hurts = "false: all parameters are in memory between the passes; true gathers twice."
    call = "fully_shard(block, reshard_after_forward=...)"
    source = _SHARDED

    def read_back(self, setup: Setup) -> Value:
        found = set() if as_sharded(setup.model) is None else reshards_after_forward(setup.model)
        return found.pop() if len(found) == 1 else self.default


def as_sharded(model: nn.Module) -> FSDPModule | None:
    """Return a model that `fully_shard` shards, with its methods; None for another one."""
    # Importing it takes a second, and without it nothing is sharded.
    if (fsdp := sys.modules.get("torch.distributed.fsdp")) is None:
        return None
    return model if isinstance(model, fsdp.FSDPModule) else None


def sharded(model: nn.Module, device: torch.device, reshards: bool) -> nn.Module:
    """Return `model`, sharded in place over all processes.

    Each of its repeated blocks is gathered by itself, and what is around them together. Every
    process gets the weights of rank 0 first. An optimizer has to be made afterwards.

    Args:
        model: the model on its device.
        device: that device.
        reshards: free gathered parameters after the forward pass, see `ReshardAfterForward`.
    """
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for tensor in (*model.parameters(), *model.buffers()):
        distributed.broadcast(tensor.detach(), src=0)
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    for module in (*repeated_blocks(model), model):
        fully_shard(module, mesh=mesh, reshard_after_forward=reshards)
    return model


COMM_DTYPE = DdpCommDtype()
RANK_KNOBS: tuple[Knob, ...] = (
    Sharding(),
    ReshardAfterForward(),
    DdpBucketMb(),
    GradientAsBucketView(),
    COMM_DTYPE,
)
DDP_KNOBS = tuple(knob for knob in RANK_KNOBS if isinstance(knob, DdpKnob))
DDP_ARGUMENTS = {knob.name: knob.argument for knob in DDP_KNOBS if knob.argument}
"""Knob to the argument of DistributedDataParallel that has it."""
