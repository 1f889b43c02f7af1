"""Outcomes of child processes: a closed sum of types, because failure is a value.

A child writes its outcome as JSON. If it could not, the runner writes what it observed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Literal

from pydantic import ConfigDict, Discriminator, TypeAdapter

from autotune.values.machine import Machine
from autotune.values.measurement import Measurement, StepTimes
from autotune.values.statistics import Reached
from autotune.values.text import fault_of


@dataclass(frozen=True, slots=True)
class Signature:
    """Keyword arguments that a function of the user's takes."""

    text: str
    """The function with its parameters, as Python spells them."""
    defaults: dict[str, bool | int | float | str | None]
    """Name of each keyword argument to its default; None if that is no plain value."""
    takes_any: bool = False
    """True if it takes `**options`."""


@dataclass(frozen=True, slots=True)
class ScriptFlag:
    """A flag that a script's parser knows, or a key of its configuration."""

    names: tuple[str, ...]
    """Spellings, such as -b and --batch-size."""
    value: int | float | None
    """Value in the observed run; None if it is no number."""
    is_open: bool = False
    """True if it has no value there, so that the script itself chooses one."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Surroundings of the training of a script, as its observed run showed it."""

    flags: tuple[ScriptFlag, ...] = ()
    refused: tuple[str, ...] = ()
    """Kinds of words that end the script if unknown: "--" for flags, "=" for keys."""
    folders: tuple[str, ...] = ()
    """Folders in which it wrote files."""
    overwritten: tuple[str, ...] = ()
    """Files that it wrote to although they existed."""
    deleted: tuple[str, ...] = ()
    """Files and folders that it deleted although they existed before."""
    kept: str = ""
    """Folder of the files that were kept as they were; empty if none was."""
    trackers: tuple[str, ...] = ()
    """Experiment trackers that it uses."""


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """Facts on the user's model.py, found by a child that built it once."""

    dataset_samples: int | None
    """Value of len(dataset); None for an iterable dataset without a length."""
    image_batches: bool
    """True if batches hold 4-D tensors and the model has 4-D weights, or both 5-D."""
    optimizer_options: bool
    """True if build_optimizer is absent or takes options such as fused=True."""
    has_evaluate: bool
    baseline: dict[str, bool | int | float | str | None]
    """The workload's BASELINE, with the settings that importing the file makes in the process."""
    model_tensors: int = 0
    """Parameter tensors of the model; 0 if unknown."""
    sample_bytes: int = 0
    """Bytes of the tensors of one sample, once collated."""
    local_modules: dict[str, str] = field(default_factory=dict)
    """The user's files that model.py imports: path from its folder to SHA-256."""
    workers_obstacle: str = ""
    """Reason why the number of workers stays as it is; empty for a map-style dataset."""
    repeated_blocks: bool = False
    """True if the model repeats blocks that can be compiled one by one."""
    has_checkpoint: bool = False
    """True if model.py has a function checkpoint(model)."""
    attention: bool = False
    """True if a source of the model mentions torch's scaled_dot_product_attention."""
    collections: float | None = None
    """Runs of Python's garbage collector in a step; None if they were not counted."""
    equal_groups: bool = False
    """True if the optimizer, one of torch's own, has parameter groups that could be one."""
    fills_memory: bool = False
    """True if torch's deterministic mode is on, even if it only warns, and fills new memory."""
    signatures: dict[str, Signature] = field(default_factory=dict)
    """Signatures of build_model and build_dataset, by name."""
    comm_dtypes: tuple[str, ...] | None = None
    """Number formats, below that of the parameters, in which the processes that train together can
    add up gradients; None for one process."""


FIRST_STEPS = 10
"""First steps that are compared."""
SETTLED_STEP = 3
"""The first of them in which all settings have taken effect."""
LOSS_SECONDS = 30.0
"""Seconds for which a script's loss is watched at most until it has fallen."""
LOSS_SHARE = 1 / 10
"""Share of the time budget that this may take."""


def no_fall(steps: int, seconds: float | None) -> str:
    """Return the doubt in a loss that did not fall in so many steps.

    `seconds` is for how long it was watched; None if the script ended by itself.
    """
    doubt = f"its loss did not drop clearly in {steps} steps"
    if seconds is None or seconds >= LOSS_SECONDS:
        return doubt
    return (
        f"{doubt} (a longer --time-budget in another study, --study NAME, may watch it for longer)"
    )


@dataclass(frozen=True, slots=True)
class FirstSums:
    """Sums that identify tensors of a script's first steps; each empty where it is not known.

    Their distance from another run's, relative to their size, estimates that of the tensors.
    """

    gradients: tuple[float, ...] = ()
    """Gradients of the first step, in which only settings of the start have taken effect."""
    update: tuple[float, ...] = ()
    """Changes of the parameters in the first of three optimizer steps that moves them."""
    settled_gradients: tuple[float, ...] = ()
    """Gradients of step `SETTLED_STEP`."""


@dataclass(frozen=True, slots=True)
class ObservedLoss:
    """Loss of an unchanged script: the tensors on which it calls `backward`."""

    source: str
    """Digest of the script and its arguments."""
    first: tuple[float, ...] = ()
    """Mean loss of each of the first steps, as far as they are finite."""
    backwards_per_step: float = 1.0
    doubt: str = ""
    """Reason why it cannot judge a training; empty if it can."""
    moves: tuple[float, ...] = ()
    """See `FirstLosses`."""
    sums: FirstSums = FirstSums()
    """See `FirstLosses`; empty if the loss cannot be compared."""
    fell_after: int | None = None
    """Samples after which it was seen to have fallen; None if it was not."""


@dataclass(frozen=True, slots=True)
class FirstLosses:
    """Losses of a script's first optimizer steps, all finite."""

    losses: tuple[float, ...]
    """Mean over the backward passes of each step."""
    backwards_per_step: float
    moves: tuple[float, ...]
    """Distance that each parameter moved from the third to the tenth step; empty if unknown."""
    sums: FirstSums = FirstSums()
    kind: Literal["first_losses"] = "first_losses"


@dataclass(frozen=True, slots=True)
class CountedFlops:
    """Arithmetic of a training step."""

    flops_per_sample: float | None = None
    """Floating-point operations of a training step for each sample; None if not counted."""
    number_format: str | None = None
    """Format of the step's products, see `autotune.training.arithmetic`."""
    matmul_flops_per_second: float | None = None
    """Rate of matrix products in that format; None if not measured."""
    kind: Literal["counted_flops"] = "counted_flops"


@dataclass(frozen=True, slots=True)
class Loading:
    """Seconds that loading a batch takes with `num_workers` workers, without training."""

    num_workers: int
    seconds: float


Doing = Literal["loading", "writing", "reading"]
"""Activity of a thread besides computing: it waits for data, writes, or reads from tensors."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """A training as a watch over some of its steps saw it."""

    seconds: float
    """Seconds of these steps and of all between them."""
    steps: int
    own: StepTimes | None = None
    """Seconds in which single steps compute; None without any step."""
    slow_line: str = ""
    """Line of the user's code in which the longest step computed longest; empty if unknown."""
    wait_seconds: float = 0.0
    """Seconds in which training waited for data."""
    spent: dict[Doing, dict[str, float]] = field(default_factory=dict)
    """Seconds of each activity by the line of the user's code, such as train.py:120; "" without."""
    reads: dict[str, float] = field(default_factory=dict)
    """Numbers that a step reads from tensors on its device, by the line of the user's code."""
    operators: float = 0.0
    """Operators of a step; 0 if they were not counted."""
    operator_seconds: float = 0.0
    """Seconds of an operator on a single number."""
    compilations: int = 0
    """Compilations after the first steps."""
    compile_share: float = 0.0
    """Share of the time since then in which code was compiled."""
    allocator_retries: int = 0
    padding: float = 0.0
    """Share of the positions of sequences, such as token IDs, that is padding."""
    memory: tuple[int, ...] = ()
    """Bytes in use before these steps, after half of them, and after all."""
    kept_graphs: float = 0.0
    """Tensors with the graph that made them that a step leaves behind."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """Seconds per batch that each phase of a step takes by itself."""

    batch_size: int
    compute_seconds: float
    """Seconds of a whole step on a batch that is on the device already."""
    double_compute_seconds: float | None
    """Seconds of a step with twice the batch size; None if the dataset has no such batch."""
    transfer_seconds: float
    """Seconds of copying a batch to the device; 0 on a CPU."""
    loading: tuple[Loading, ...]
    """Loading with each number of workers, 0 first; empty if no DataLoader feeds training."""
    optimizer_seconds: float
    """Part of `compute_seconds` in which the optimizer updates the parameters."""
    launch_seconds: float | None = None
    """Seconds until a step has queued its kernels on the accelerator; None on a CPU."""
    busy_seconds: float | None = None
    """Seconds of a step in which kernels run on the accelerator; None without a profiler."""
    processes: int = 1
    """Processes that train together, each with such batches at the same time."""
    exchange_seconds: float | None = None
    """Part of `compute_seconds` that exchanging gradients adds; None for one process."""
    profiled: Profiled | None = None
    """Activities of the loop besides computing; None if it was not watched."""
    kind: Literal["diagnosed"] = "diagnosed"

    @property
    def samples(self) -> int:
        """Samples of a batch, of all processes together."""
        return self.processes * self.batch_size


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
    untrained: float | None = None
    """Quality of the first seed before training; None if it was not asked for, or not finite."""
    reached: tuple[Reached, ...] = ()
    """Samples and loss at the end of each seed, where the task follows the loss."""
    kind: Literal["probed"] = "probed"


@dataclass(frozen=True, slots=True)
class Inspected:
    """Facts on the machine and on the workload."""

    machine: Machine
    workload: WorkloadFacts | None
    device_uuid: str = ""
    """Identity of the accelerator, independent of its index; empty if torch gives none."""
    rank_uuids: tuple[str, ...] = ()
    """Identity for each process of a trial; empty if one trains alone or on CPUs."""
    device_free_bytes: int | None = None
    """Free memory of the accelerator; None on a CPU, or if the device does not report it."""
    import_seconds: float = 0.0
    """Seconds that importing the workload took."""
    dataset_seconds: float = 0.0
    """Seconds that building the training set took."""
    is_shared: bool = False
    """True if a warm host paid those seconds, once for all processes forked from it."""
    processes: int = 1
    """Processes that a launcher started."""
    kind: Literal["inspected"] = "inspected"


@dataclass(frozen=True, slots=True)
class Gated:
    """Result of a numerical check: relative errors of one batch and of the first steps.

    The standard for loss and gradients is the reference settings in float64, or in float32 if the
    model does not run in float64. Errors that a check does not measure are None.
    """

    loss_error: float
    gradient_error: float | None = None
    """L2 norm of the difference of all gradients, relative to the standard's norm."""
    update_error: float | None = None
    """Relative error of the optimizer's first update from equal gradients."""
    path_error: float | None = None
    """Distance of the weights after the first steps from the reference's, divided by the distance
    that the reference's moved."""
    reach_error: float | None = None
    """Relative difference in the distance that the weights moved in the first steps."""
    buffer_error: float | None = None
    """Distance of the buffers after the first steps from the reference's, divided by the distance
    that the reference's moved."""
    reference_loss_error: float = 0.0
    """The reference's own error, from rounding only; 0 if it is the standard."""
    reference_gradient_error: float = 0.0
    rounding_path_error: float | None = 0.0
    """Path error of the reference after rounding its initial weights by as much as the gradients
    differ, and drawing other random numbers; None in a table that was recorded before that."""
    rounding_reach_error: float | None = 0.0
    rounding_buffer_error: float | None = 0.0
    seed_spread: float = 0.0
    """Relative change of the reference's gradients under another seed; 0 without random numbers."""
    batch_spread: float = 0.0
    """Relative change of the reference's gradients on another batch; 0 if there is none."""
    in_double: bool = False
    """True if the standard is float64, False if float32."""
    settled_gradients: tuple[float, ...] = ()
    """Those of a script's `FirstSums`, for later checks; empty for a model.py."""
    kind: Literal["gated"] = "gated"


@dataclass(frozen=True, slots=True)
class Observed:
    """Observed training of an unchanged script."""

    device: str
    loaders: tuple[str, ...]
    """Sites of its DataLoaders as file:line#index, such as train.py:41#0."""
    training_loader: str
    """Site of the DataLoader that feeds training; empty if none does."""
    steps_per_second: float
    samples_per_second: float
    wait_share: float
    """Share of the time in which training waited for data, 0 to 1."""
    fixed: dict[str, str]
    """Knobs that stay as the script has them, each with the reason."""
    workload: WorkloadFacts
    own: tuple[str, ...] = ()
    """Knobs that the script sets itself, and whose values trials replace."""
    recompilations: int = 0
    """Times that code was compiled in the few steps in which its speed was observed."""
    scales: bool = False
    """True if it scales its loss, so that its own autocast may run in float16."""
    counts_samples: bool = True
    """False if the samples of a step are unknown, so that each step counts as one."""
    visible_devices: str | None = None
    """`CUDA_VISIBLE_DEVICES` as the script sets it; None if it leaves that as it is."""
    loss: ObservedLoss | None = None
    """Its loss; None if it was not watched."""
    profiled: Profiled | None = None
    """Activities of the loop, see `Diagnosed`."""
    stages: Diagnosed | None = None
    """Seconds of each phase of its steps; None if they cannot be separated."""
    start_seconds: float = 0.0
    """Seconds until its training began."""
    import_seconds: float = 0.0
    """Those of `start_seconds` until torch was imported, by the warm host if it had one."""
    surroundings: Surroundings = field(default_factory=Surroundings)
    processes: int = 1
    """Processes in which it trains."""
    learning_rates: tuple[float, ...] = ()
    """Learning rate of each group of its optimizer in the first step, before any schedule."""
    kind: Literal["observed"] = "observed"


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Some memory ran out, in this process or in a DataLoader worker."""

    memory: Memory
    detail: str
    peak_bytes: int | None = None
    """Most bytes observed in use; None if unknown."""
    foreseen: bool = False
    """True: not run, because its batches would not fit into /dev/shm."""
    during: str = ""
    """Phase in which memory ran out, if not training; see `process.common.trial_folder`."""
    kind: Literal["out_of_memory"] = "out_of_memory"


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The process gave no result within the limit; its group was killed."""

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
    """A knob read back another value than was set, so the timing is invalid."""

    knob: str
    wanted: str
    got: str
    kind: Literal["not_applied"] = "not_applied"


@dataclass(frozen=True, slots=True)
class UserError:
    """The user's code raised; with the baseline this ends the search."""

    detail: str
    where: str
    """Innermost frame in the user's file as file:line; empty if there is none."""
    kind: Literal["user_error"] = "user_error"


@dataclass(frozen=True, slots=True)
class Lost:
    """A fault of the infrastructure, which says nothing about the configuration."""

    detail: str
    kind: Literal["lost"] = "lost"


Failure = OutOfMemory | TimedOut | Crashed | NonFinite | Rejected | NotApplied | UserError | Lost
OfScript = FirstLosses | Observed
Answer = Measured | Probed | Inspected | CountedFlops | Diagnosed | Gated | OfScript
TrialOutcome = Answer | Failure


@cache
def adapter() -> TypeAdapter[TrialOutcome]:
    """Return the adapter that reads and writes outcomes; making it takes a moment."""
    finite = ConfigDict(allow_inf_nan=False)
    return TypeAdapter(Annotated[TrialOutcome, Discriminator("kind")], config=finite)


def outcome_to_json(outcome: TrialOutcome) -> str:
    """Return an outcome as indented JSON."""
    return adapter().dump_json(outcome, indent=1).decode()


def outcome_from_json(text: str | bytes) -> TrialOutcome:
    """Read an outcome back; invalid text becomes `Lost`, never an exception."""
    try:
        outcome = adapter().validate_json(text, strict=True)
    except ValueError as error:
        return Lost(f"the child's outcome is not readable: {fault_of(error)}")
    if isinstance(outcome, Measured) and (nonsense := outcome.measurement.nonsense):
        return Lost(f"the child's outcome makes no sense: {nonsense}")
    return outcome


def as_failure(outcome: TrialOutcome) -> Failure:
    """Return `outcome` as a failure; an answer of another kind than asked for becomes `Lost`."""
    if isinstance(outcome, Answer):
        return Lost(f"the child answered with {outcome.kind!r}, which was not asked")
    return outcome


def describe(failure: Failure) -> str:
    """Return one line on what failed."""
    match failure:
        case OutOfMemory(_, detail, foreseen=True):
            return detail
        case OutOfMemory("file descriptors", detail):
            return f"out of file descriptors: {detail}; `ulimit -n` says how many there are"
        case OutOfMemory(memory, detail, during=""):
            return f"out of {memory} memory: {detail}"
        case OutOfMemory(memory, detail, during=during):
            return f"out of {memory} memory during {during} (not during training): {detail}"
        case TimedOut(phase, limit):
            return f"no result within {limit:g} s (during {phase})"
        case NotApplied(knob, wanted, got):
            return f"{knob} did not take effect: wanted {wanted}, read back {got}"
        case UserError(detail, where):
            return f"{where}: {detail}" if where else detail
        case _:
            return failure.detail
