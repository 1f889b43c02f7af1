"""What became of one child process: a closed sum, because failure is a value.

A child writes its outcome as JSON into its folder; where it could not (killed, crashed, silent)
the runner writes what it saw. What an outcome is worth is decided in `autotune.constraints`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

from pydantic import Discriminator, TypeAdapter

from autotune.machine import Machine
from autotune.measurement import Measurement
from autotune.strict_json import check, fault_of
from autotune.workload_facts import WorkloadFacts

Memory = Literal["device", "host", "shared", "file descriptors"]


@dataclass(frozen=True, slots=True)
class Measured:
    """The configuration trained and was timed."""

    measurement: Measurement
    kind: Literal["measured"] = "measured"


@dataclass(frozen=True, slots=True)
class Probed:
    """The configuration trained on a fixed number of samples; one quality per seed."""

    qualities: tuple[float, ...]
    seconds: float
    kind: Literal["probed"] = "probed"


@dataclass(frozen=True, slots=True)
class Inspected:
    """What the machine allows and what the workload is."""

    machine: Machine
    workload: WorkloadFacts | None
    device_uuid: str = ""
    """Which accelerator this is, whatever its number here; empty where torch does not tell."""
    kind: Literal["inspected"] = "inspected"


@dataclass(frozen=True, slots=True)
class SpeedLimits:
    """Speed of light of each stage on its own, in samples per second."""

    loader: float
    compute: float
    kind: Literal["speed_limits"] = "speed_limits"


@dataclass(frozen=True, slots=True)
class Loading:
    """What making a batch takes with so many workers, while nobody trains."""

    num_workers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """What each stage of training takes on its own, in seconds per batch."""

    batch_size: int
    compute_seconds: float
    """A whole step on a batch that is on the device already."""
    double_compute_seconds: float | None
    """The same for a batch of twice the size; None where the dataset has none."""
    transfer_seconds: float
    """Copying a batch to the device; 0 on a CPU."""
    loading: tuple[Loading, ...]
    """Without workers first."""
    optimizer_seconds: float
    """The part of `compute_seconds` in which the optimizer updates the parameters."""
    launch_seconds: float | None = None
    """Until a step has told the accelerator what to do, done or not; None on a CPU."""
    bfloat16_compute_seconds: float | None = None
    """Of a step under bfloat16 autocast; None where that was not asked for, or fails."""
    kind: Literal["diagnosed"] = "diagnosed"


@dataclass(frozen=True, slots=True)
class Operator:
    """One kind of operator in a training step."""

    name: str
    calls: int
    """In all profiled steps."""
    seconds: float
    """Its own, without those it calls, per step."""
    share: float
    """Of all operators' own time."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """What a training step is made of, the dearest operator first."""

    operators: tuple[Operator, ...]
    kind: Literal["profiled"] = "profiled"


@dataclass(frozen=True, slots=True)
class Gated:
    """How far one batch's loss and gradients are from the best known, relative to its size."""

    loss_error: float
    gradient_error: float
    """L2 norm of the difference of all gradients at once."""
    gradient_cosine: float
    update_error: float
    """Of the optimizer's first update from equal gradients, against the reference's optimizer."""
    trajectory_error: float
    """Of the losses of the first steps, against the reference's, in units of what another seed
    changes in those."""
    path_error: float
    """Of the weights after the first steps, against the reference's, relative to how far those
    went."""
    reach_error: float
    """Of how far the weights went in the first steps, whichever way."""
    reference_loss_error: float
    """What rounding alone does: the reference's own errors; 0 where it is the best known."""
    reference_gradient_error: float
    reference_path_error: float
    """What rounding the first weights, and drawing other numbers, changes in the reference's own
    last ones."""
    seed_spread: float
    """What another seed changes in the reference's gradients: 0 unless the model draws numbers."""
    batch_spread: float
    """What another batch changes in the reference's gradients: the noise that training lives with;
    0 where there is no other."""
    in_double: bool
    """Whether the best known is float64; some models only run in float32."""
    kind: Literal["gated"] = "gated"


@dataclass(frozen=True, slots=True)
class Observed:
    """What a training script does by itself."""

    device: str
    loaders: tuple[str, ...]
    """Where it builds DataLoaders, such as train.py:41#0: file, line, and which one there."""
    training_loader: str
    """The one of them that feeds the optimizer."""
    steps_per_second: float
    samples_per_second: float
    wait_share: float
    """Share of the time in which training waited for data, 0 to 1."""
    fixed: dict[str, str]
    """Knobs that the script decides itself, and why each has to stay as it is."""
    workload: WorkloadFacts
    kind: Literal["observed"] = "observed"


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Some memory ran out, in this process or in a DataLoader worker."""

    memory: Memory
    detail: str
    peak_bytes: int | None = None
    """The most that was seen in use; None where nobody could tell."""
    foreseen: bool = False
    """Not run: what was measured before says that it would not fit."""
    kind: Literal["out_of_memory"] = "out_of_memory"


@dataclass(frozen=True, slots=True)
class TimedOut:
    """No result within the limit; the process group was killed."""

    phase: str
    limit_seconds: float
    kind: Literal["timed_out"] = "timed_out"


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process died or left without a result: a signal, an abort, an early exit."""

    detail: str
    kind: Literal["crashed"] = "crashed"


@dataclass(frozen=True, slots=True)
class NonFinite:
    """The loss became NaN or infinite."""

    detail: str
    kind: Literal["non_finite"] = "non_finite"


@dataclass(frozen=True, slots=True)
class Rejected:
    """PyTorch, the compiler or the dataset cannot do what the configuration asks."""

    detail: str
    kind: Literal["rejected"] = "rejected"


@dataclass(frozen=True, slots=True)
class NotApplied:
    """A knob read back another value than was set, so the timing is not of this configuration."""

    knob: str
    wanted: str
    got: str
    kind: Literal["not_applied"] = "not_applied"


@dataclass(frozen=True, slots=True)
class UserError:
    """The user's code raised; with the baseline this ends the search."""

    detail: str
    where: str
    """file:line of the innermost frame in the user's file; empty where there is none."""
    kind: Literal["user_error"] = "user_error"


@dataclass(frozen=True, slots=True)
class Lost:
    """A fault of the infrastructure: says nothing about the configuration."""

    detail: str
    kind: Literal["lost"] = "lost"


Failure = OutOfMemory | TimedOut | Crashed | NonFinite | Rejected | NotApplied | UserError | Lost
Answer = Measured | Probed | Inspected | SpeedLimits | Diagnosed | Profiled | Gated | Observed
TrialOutcome = Answer | Failure


@cache
def _adapter() -> TypeAdapter[TrialOutcome]:
    return TypeAdapter(Annotated[TrialOutcome, Discriminator("kind")])


def outcome_to_json(outcome: TrialOutcome) -> str:
    """One outcome as indented JSON."""
    return _adapter().dump_json(outcome, indent=1).decode()


def outcome_from_json(text: str | bytes) -> TrialOutcome:
    """Read an outcome back; what is not one becomes `Lost`, never an exception."""
    try:
        check(text)
        outcome = _adapter().validate_json(text, strict=True)
    except ValueError as error:
        return Lost(f"the child's outcome is not readable: {fault_of(error)}")
    nonsense = nonsense_in(outcome)
    return Lost(f"the child's outcome makes no sense: {nonsense}") if nonsense else outcome


def nonsense_in(outcome: TrialOutcome) -> str | None:
    """What of an outcome cannot have been observed, or None; its statistics rest on these."""
    return outcome.measurement.nonsense if isinstance(outcome, Measured) else None


def as_failure(outcome: TrialOutcome) -> Failure:
    """The failure that `outcome` is; an answer to another question than asked is one, too."""
    if isinstance(outcome, Answer):
        return Lost(f"the child answered with {outcome.kind!r}, which was not asked")
    return outcome


def describe(failure: Failure) -> str:
    """One line for people: what happened."""
    match failure:
        case OutOfMemory(_, detail, foreseen=True):
            return detail
        case OutOfMemory("file descriptors", detail):
            return f"out of file descriptors: {detail}; `ulimit -n` says how many there are"
        case OutOfMemory(memory, detail):
            return f"out of {memory} memory: {detail}"
        case TimedOut(phase, limit):
            return f"no result within {limit:g} s (during {phase})"
        case NotApplied(knob, wanted, got):
            return f"{knob} did not take effect: wanted {wanted}, read back {got}"
        case UserError(detail, where):
            return f"{where}: {detail}" if where else detail
        case _:
            return failure.detail
