"""Knobs of several processes: how they exchange gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from autotune.knobs.base import Integers, Knob, OneOf, Setup, Value
from autotune.knobs.torch_private import comm_hooks
from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

ALONE = "only one process trains"
"""Reason why knobs of several processes stay as they are."""
_DDP = (
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
)
_MIB = 1 << 20
COMM_HOOKS = {"bfloat16": "bf16_compress_hook", "float16": "fp16_compress_hook"}
"""Name of torch's compression hook for each number format."""


class DdpKnob(Knob):
    """A setting of DistributedDataParallel."""

    of_ranks = True
    source: ClassVar[str] = _DDP
    argument: ClassVar[str] = ""
    """Argument of DistributedDataParallel that has it, and attribute that has it; "" for none."""

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


COMM_DTYPE = DdpCommDtype()
RANK_KNOBS: tuple[DdpKnob, ...] = (DdpBucketMb(), GradientAsBucketView(), COMM_DTYPE)
DDP_ARGUMENTS = {knob.name: knob.argument for knob in RANK_KNOBS if knob.argument}
"""Knob to the argument of DistributedDataParallel that has it."""
