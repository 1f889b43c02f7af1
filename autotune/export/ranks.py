"""Parts of forms for several processes: how to start them, and words for the settings of DDP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.knobs.ranks import DDP_ARGUMENTS

PROCESSES = "processes"
"""Name under which a form says that it cannot start the processes."""
PROCESSES_PER_HOST = "processes_per_host"
_FORMATS: dict[Value, str] = {"bfloat16": "BF16", "float16": "FP16"}


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts on which the processes of an answer trained."""

    count: int
    """Hosts; the fewest that have room for all where they do not share them evenly."""
    processes: int
    """Processes on each host; the most where they do not share them evenly."""
    are_alike: bool
    """True if each host has equally many."""


def hosts_of(best: BestConfig) -> Hosts:
    """Return the hosts of an answer, with their processes."""
    processes = best.processes or 1
    on_each = best.processes_per_host or processes
    return Hosts(-(-processes // on_each), on_each, processes % on_each == 0)


def by_torchrun(best: BestConfig) -> str:
    """Return how to start the processes where a form has no word for them."""
    hosts = hosts_of(best)
    if not hosts.are_alike:
        return f"start so many by a launcher, at most {hosts.processes} on a host, as measured"
    if hosts.count == 1:
        return f"start the training by torchrun --nproc-per-node {best.processes}"
    words = f"torchrun --nnodes {hosts.count} --nproc-per-node {hosts.processes}"
    return f"start the training by {words} on each host, with --rdzv-backend and --rdzv-endpoint"


def ddp_arguments(config: TrainingConfig) -> dict[str, Any]:
    """Return the arguments of DistributedDataParallel that are not its defaults.

    There are none for a sharded model, which it does not wrap.
    """
    return {
        argument: config[knob]
        for knob, argument in DDP_ARGUMENTS.items()
        if config[knob] != KNOBS[knob].default and not config.is_idle(KNOBS[knob])
    }


def handler_fields(config: TrainingConfig) -> dict[str, tuple[str, str]]:
    """Return knob to the field of DistributedDataParallelKwargs that has it, and the field's code.

    Those at DistributedDataParallel's defaults are left out.
    """
    arguments = ddp_arguments(config).items()
    knobs = {argument: knob for knob, argument in DDP_ARGUMENTS.items()}
    found = {knobs[name]: (name, repr(value)) for name, value in arguments}
    dtype = config["ddp_comm_dtype"]
    if dtype is not None and not config.is_idle(KNOBS["ddp_comm_dtype"]):
        found["ddp_comm_dtype"] = ("comm_hook", f"DDPCommunicationHookType.{_FORMATS[dtype]}")
    return found
