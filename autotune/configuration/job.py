"""Jobs of child processes: the content of `job.json` in a trial's folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Literal

from pydantic import Discriminator, TypeAdapter

from autotune.configuration.script import Script
from autotune.knobs.base import Value
from autotune.values.errors import AutotuneError
from autotune.values.text import fault_of

SEARCH_HOST = "search"
"""Name of the warm host from which trials are forked."""


FIRST_SEED = 0
"""Seed of a job that is given none, such as the observation of a script."""


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """Length of the warm-up and of the timing."""

    warmup_steps: int = 5
    """Least number of untimed steps; more if the loader's queue holds more batches."""
    block_seconds: float = 0.25
    """Length of a block: as many whole steps as fit into it, at least one."""
    block_counts: tuple[int, ...] = (6, 9, 12, 17, 25)
    """Numbers of blocks after which the width of the interval is checked."""
    precision: float = 0.02
    """Half-width of the interval, relative to the mean, at which timing ends."""
    max_seconds: float = 3.0
    """Seconds after which timing ends at the next check, however wide the interval is; four times
    as many where rare slow steps have to be seen, or `block_samples` timed. The warm-up has them
    once for its steps and once for `warmup_samples`."""
    least_samples: int = 0
    """Samples to time at least while there is time, so that rare slow steps are among them."""
    warmup_samples: int = 0
    """Least number of untimed samples, so that two timings begin at the same one."""
    block_samples: int | None = None
    """Samples of each block in place of `block_seconds`, so that two timings take as many."""
    most_disturbed: int = 8
    """Number of disturbed blocks that are timed again; further ones count."""
    incumbent_seconds_per_sample: float | None = None
    """Seconds per sample of the best trial so far; a clearly slower trial is stopped early."""


@dataclass(frozen=True, slots=True)
class Inspect:
    """Report facts on the machine and, with a model path, on the workload."""

    visible_devices: str | None = None
    """`CUDA_VISIBLE_DEVICES` as a script sets it; None: as the process finds it."""
    baseline: dict[str, Value] = field(default_factory=dict)
    """Settings under which the workload is built; they override its BASELINE."""
    processes: int = 1
    """Processes of a script, each of which trains on a device of its own."""
    kind: Literal["inspect"] = "inspect"


@dataclass(frozen=True, slots=True)
class Measure:
    """Train for a short while and time it."""

    plan: MeasurePlan
    kind: Literal["measure"] = "measure"


@dataclass(frozen=True, slots=True)
class Probe:
    """Train on exactly `samples` samples, once per seed, and evaluate."""

    samples: int
    seeds: tuple[int, ...]
    evaluation_batch: int = 32
    """Batch size of the held-out loss: the baseline's, for every configuration."""
    untrained: bool = False
    """True: also evaluate a model of the first seed before training."""
    loss: Literal["mean", "sum"] | None = None
    """Judge a script by its training loss, the mean or sum over the backward passes of a step.

    None: by the metric that it prints.
    """
    most: int = 0
    """Samples after which to give up a training that is to reach a loss; 0: `samples` in any case.
    """
    reach: float | None = None
    """Smoothed training loss at which to end. None: train on `samples`, and report that loss."""
    kind: Literal["probe"] = "probe"


@dataclass(frozen=True, slots=True)
class CountFlops:
    """Count the FLOPs of a step, and time matrix products in its number format."""

    machine_threads: int = 1
    """Threads with which a CPU reaches its rate of matrix products."""
    known_formats: tuple[str, ...] = ()
    """Number formats whose rate is known and is not measured again."""
    kind: Literal["count_flops"] = "count_flops"


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Time each stage of training on its own: loading, copying, computing, updating."""

    plan: MeasurePlan
    workers: tuple[int, ...]
    """Numbers of DataLoader workers to time; 0 loads in the training process."""
    watch_seconds: float = 0.0
    """Seconds, or longer for few steps, to watch what the loop does besides computing; 0: none."""
    kind: Literal["diagnose"] = "diagnose"


@dataclass(frozen=True, slots=True)
class Gate:
    """Compare loss, gradients and first steps with those under the `reference` settings."""

    reference: dict[str, Value]
    """Settings that differ from the job's only in numerics."""
    in_double: bool = True
    """Also compute in float64, which takes twice the memory."""
    kind: Literal["gate"] = "gate"


@dataclass(frozen=True, slots=True)
class TakeFirstSteps:
    """Run a script for some optimizer steps and report their losses."""

    steps: int
    nudge: float = 0.0
    """Relative change of the weights by which the steps begin, with other random numbers from then
    on. It shows what rounding and random numbers do to the losses."""
    draws_as_eager: bool = False
    """True if code is to be compiled again so that it draws eager mode's random numbers."""
    kind: Literal["take_first_steps"] = "take_first_steps"


@dataclass(frozen=True, slots=True)
class Observe:
    """Run a script unchanged for some steps and report its training."""

    loss_seconds: float = 0.0
    """Seconds in which its loss should fall; more if few steps fit into them. 0: not watched."""
    source: str = ""
    """Digest of the script and its arguments, which the outcome repeats."""
    watch_seconds: float = 0.0
    """Seconds for which to watch the loop, see `Diagnose`."""
    kind: Literal["observe"] = "observe"


Task = Annotated[
    Inspect | Measure | Probe | CountFlops | Diagnose | Gate | TakeFirstSteps | Observe,
    Discriminator("kind"),
]


@dataclass(frozen=True, slots=True)
class Job:
    """One task for one child process."""

    task: Task
    device: str
    """"auto", or the device as torch spells it."""
    model_path: str | None = None
    """Absolute path of the model.py or script; None for an inspection of only the machine."""
    config: dict[str, Value] | None = None
    seed: int = FIRST_SEED
    lr_factor: float = 1.0
    """Factor on every learning rate of the workload's optimizer."""
    memory_limit_bytes: int | None = None
    """Memory limit, enforced by the child's device allocator, on CPU by the runner."""
    host_limit_bytes: int | None = None
    """Limit of the host's memory with an accelerator, enforced by the runner."""
    deadline_seconds: float = 300.0
    host: str | None = SEARCH_HOST
    """Name of the warm host to fork from; None: a fresh interpreter."""
    fresh_data: bool = False
    """True: the process builds its dataset. False: its host does, if forks can use it."""
    script: Script | None = None
    """Call of the script; None if the workload is a model.py."""
    processes: int = 1
    """Processes that carry out the task together; 0: as many as `launch` starts."""
    launch: tuple[str, ...] = ()
    """Command that starts the processes, put before theirs; empty: torch's launcher does."""

    @property
    def is_of_ranks(self) -> bool:
        """True if the processes are several, or started by a launcher of the user's."""
        return self.processes != 1 or bool(self.launch)

    @property
    def builds_dataset(self) -> bool:
        """True if the workload is a model.py, whose training set the process or its host builds."""
        return self.script is None and self.model_path is not None

    def calling(self, change: Callable[[Script], Script]) -> Job:
        """Return the job with a changed call of its script; without a script, unchanged."""
        return self if self.script is None else replace(self, script=change(self.script))


@cache
def adapter() -> TypeAdapter[Job]:
    """Return the adapter that reads and writes jobs."""
    return TypeAdapter(Job)


def without_arguments(job: Job) -> Job:
    """Return the job with the script's arguments masked, because they may hold secrets."""
    return job.calling(lambda call: replace(call, arguments=("***",) * len(call.arguments)))


def job_to_json(job: Job) -> str:
    """Return a job as indented JSON."""
    return adapter().dump_json(job, indent=1).decode()


def job_from_json(text: str | bytes) -> Job:
    """Read a job back.

    Raises:
        AutotuneError: not a job.
    """
    try:
        return adapter().validate_json(text, strict=True)
    except ValueError as error:
        raise AutotuneError(f"no readable job: {fault_of(error)}") from error
