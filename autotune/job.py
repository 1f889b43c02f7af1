"""What a child process is told: `job.json` in its folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Literal

from pydantic import Discriminator, TypeAdapter

from autotune.errors import AutotuneError
from autotune.knobs.base import Value
from autotune.script import Script
from autotune.strict_json import check, fault_of


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """How long to warm up and to time."""

    warmup_steps: int = 5
    """At least this many untimed steps, and as many as the loader's queue holds batches."""
    block_seconds: float = 0.25
    """A block has as many whole steps as fit into this, at least one."""
    looks: tuple[int, ...] = (6, 9, 12, 17, 25)
    """Numbers of blocks at which to look whether the interval is narrow enough."""
    precision: float = 0.02
    """Half-width of the interval, relative to the median, at which timing ends."""
    max_seconds: float = 3.0
    """Timing ends at the first look after this many seconds, however wide the interval is."""
    most_disturbed: int = 8
    """So many disturbed blocks are timed again; further ones count."""
    incumbent_seconds_per_sample: float | None = None
    """Of the best trial so far: one that is clearly slower is given up early."""


@dataclass(frozen=True, slots=True)
class Inspect:
    """Say what the machine allows and, with a model path, what the workload is."""

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
    kind: Literal["probe"] = "probe"


@dataclass(frozen=True, slots=True)
class FindLimits:
    """Time the loader alone and the computation alone."""

    plan: MeasurePlan
    kind: Literal["find_limits"] = "find_limits"


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Time each stage of training on its own: loading, copying, computing, updating."""

    plan: MeasurePlan
    workers: tuple[int, ...]
    """How many workers to load with; 0 loads in the training process."""
    bfloat16: bool = False
    """Whether to time a step under bfloat16 autocast, too."""
    kind: Literal["diagnose"] = "diagnose"


@dataclass(frozen=True, slots=True)
class Profile:
    """Say which operators take the time of a step."""

    warmup_steps: int = 10
    trace_path: str | None = None
    """Where to write a Chrome trace of the steps, if anywhere."""
    kind: Literal["profile"] = "profile"


@dataclass(frozen=True, slots=True)
class Gate:
    """Compare loss and gradients of one batch with those that `reference` gives."""

    reference: dict[str, Value]
    """Settings that differ from the job's in numerics alone."""
    in_double: bool = True
    """Whether to reckon in float64, too, which takes twice the memory."""
    kind: Literal["gate"] = "gate"


@dataclass(frozen=True, slots=True)
class Observe:
    """Run a script as it is for some steps, and say what it does."""

    kind: Literal["observe"] = "observe"


Task = Annotated[
    Inspect | Measure | Probe | FindLimits | Diagnose | Profile | Gate | Observe,
    Discriminator("kind"),
]


@dataclass(frozen=True, slots=True)
class Job:
    """One task for one child process."""

    task: Task
    device: str
    """"auto", or as torch spells it."""
    model_path: str | None = None
    """Absolute path of model.py or script; None only for an inspection of the machine alone."""
    config: dict[str, Value] | None = None
    seed: int = 0
    lr_factor: float = 1.0
    """What every learning rate of the workload's optimizer is multiplied by."""
    memory_limit_bytes: int | None = None
    """Enforced by the device allocator inside the child, by the runner on CPU."""
    deadline_seconds: float = 300.0
    host: str | None = "search"
    """Jobs of one name after another are forked from one warm host; None: a fresh interpreter."""
    script: Script | None = None
    """How to call a script; None where it is a model.py."""


@cache
def _adapter() -> TypeAdapter[Job]:
    return TypeAdapter(Job)


def without_arguments(job: Job) -> Job:
    """The same, but for the words that a script is called with: they may hold secrets."""
    if job.script is None:
        return job
    return replace(job, script=replace(job.script, arguments=("***",) * len(job.script.arguments)))


def job_to_json(job: Job) -> str:
    """One job as indented JSON."""
    return _adapter().dump_json(job, indent=1).decode()


def job_from_json(text: str | bytes) -> Job:
    """Read a job back.

    Raises:
        AutotuneError: not a job.
    """
    try:
        check(text)
        return _adapter().validate_json(text, strict=True)
    except ValueError as error:
        raise AutotuneError(f"no readable job: {fault_of(error)}") from error
