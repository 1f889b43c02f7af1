"""Measurement of one training process. Raw numbers are stored, statistics derived."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from autotune.values.statistics import Interval, Part, ratio_interval, ratio_of

# A step this many times as long as the median step is slow.
_SLOW = 3.0
# Steps are uneven if their slow ones take this share of the time.
_UNEVEN = 0.2
# Slow steps after which their frequency is known to about a half.
_SEEN_OFTEN = 4
FEWEST_STEPS = 6
"""Fewer steps do not show which of them are slow."""

# Processes whose rates give an interval.
_ENOUGH_RUNS = 4

# Steps that a log has room for: of the shortest ones those of all blocks of a trial.
_MOST_STEPS = 1 << 16

Step = tuple[float, float]
"""Seconds of a step, and those of them in which it waited for data."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Distribution of the seconds of the timed steps of one process, or of several."""

    count: int
    seconds: float
    """Sum over all steps."""
    median_seconds: float
    p99_seconds: float
    longest_seconds: float
    slow: int
    """Steps that took three times as long as the median step, or longer."""
    slow_seconds: float
    """Sum over these."""
    slow_wait_seconds: float
    """Part of `slow_seconds` in which training waited for data."""

    @property
    def is_uneven(self) -> bool:
        """Return True if slow steps take a fifth of the time or more."""
        return self.count >= FEWEST_STEPS and self.slow_seconds >= _UNEVEN * self.seconds

    @property
    def shows_slow_steps(self) -> bool:
        """Return True if the steps are even, or enough slow ones show how often they come."""
        return not self.is_uneven or self.slow >= _SEEN_OFTEN

    @property
    def steps_to_time(self) -> int:
        """Return the steps among which enough slow ones are to be expected; 0 for even steps."""
        return round(_SEEN_OFTEN * self.count / self.slow) if self.is_uneven else 0


class StepLog:
    """Seconds of the steps of a timing.

    Its memory is taken at once, because memory that grows from block to block looks like a leak.
    """

    def __init__(self) -> None:
        self._seconds, self._waits = (array("d", bytes(8 * _MOST_STEPS)) for _ in range(2))
        self._disturbed = bytearray(_MOST_STEPS)
        self._count = self._kept = 0

    def begin(self) -> None:
        """Begin a block; the steps since the last one that was kept are dropped."""
        self._count = self._kept

    def add(self, seconds: float, waited: float) -> None:
        """Add a step of the block; a log that is full stays as it is."""
        if self._count < _MOST_STEPS:
            self._seconds[self._count], self._waits[self._count] = seconds, waited
            self._count += 1

    def keep(self, disturbed: bool) -> None:
        """Keep the steps of the block."""
        for step in range(self._kept, self._count):
            self._disturbed[step] = disturbed
        self._kept = self._count

    def times(self) -> StepTimes | None:
        """Return the distribution over undisturbed blocks, or over all if these have few steps."""
        steps = list(zip(self._seconds[: self._kept], self._waits, strict=False))
        calm = [step for step, bad in zip(steps, self._disturbed, strict=False) if not bad]
        return step_times(calm if len(calm) >= FEWEST_STEPS else steps)


def step_times(steps: Sequence[Step]) -> StepTimes | None:
    """Return the distribution of single steps; None without any."""
    if not steps:
        return None
    ordered = sorted(seconds for seconds, _ in steps)
    usual = median(ordered)
    slow = [step for step in steps if step[0] >= _SLOW * usual]
    return StepTimes(
        count=len(steps),
        seconds=sum(ordered),
        median_seconds=usual,
        p99_seconds=ordered[round(0.99 * (len(ordered) - 1))],
        longest_seconds=ordered[-1],
        slow=len(slow),
        slow_seconds=sum(seconds for seconds, _ in slow),
        slow_wait_seconds=sum(waited for _, waited in slow),
    )


def together(parts: Iterable[StepTimes | None]) -> StepTimes | None:
    """Return the distribution over several processes; None if none of them recorded its steps.

    Quantiles are the medians of the processes' own.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    return StepTimes(
        count=sum(part.count for part in known),
        seconds=sum(part.seconds for part in known),
        median_seconds=median(part.median_seconds for part in known),
        p99_seconds=median(part.p99_seconds for part in known),
        longest_seconds=max(part.longest_seconds for part in known),
        slow=sum(part.slow for part in known),
        slow_seconds=sum(part.slow_seconds for part in known),
        slow_wait_seconds=sum(part.slow_wait_seconds for part in known),
    )


def uneven_text(runs: Sequence[Measurement]) -> str | None:
    """Return a remark on the steps of timings, if they are uneven, with what may cause that."""
    steps = together(run.steps for run in runs)
    if steps is None or not steps.is_uneven:
        return None
    share, of_time = steps.slow / steps.count, steps.slow_seconds / steps.seconds
    if steps.slow_wait_seconds > steps.slow_seconds / 2:
        cause = "they wait for data"
    elif disturbance := disturbance_of(runs):
        cause = f"{disturbance} meanwhile"
    else:
        cause = "`autotune profile` shows in which line"
    return (
        f"{100 * share:.2g} % of the steps take {100 * of_time:.0f} % of the time (median "
        f"{_time(steps.median_seconds)}, longest {_time(steps.longest_seconds)}): {cause}"
    )


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


# Share of the usable cores that other programs or the host may take without disturbing a block. A
# quiet machine stays below a third of it; one busy process on two cores takes half. If more than
# this share and one core are idle, other programs took nothing that the trial needed.
DISTURBING = 0.1
STOPPED_EARLY, UNSTEADY, UNWATCHED, UNEVEN = "stopped_early", "unsteady", "unwatched", "uneven"
NO_BOUNDARY = "no_boundary"
"""Remarks on a timing: stopped because it was clearly slower, not steady until its end, on a
machine whose other programs cannot be seen, and with a few slow steps that take much of the time.
"""
# Flags of a timing that was not completed.
_CUT_SHORT = frozenset({STOPPED_EARLY, UNSTEADY})
# Six undisturbed blocks are enough for an interval. So are three or more that are at least half of
# all blocks, because slow steps leave no time for more. Otherwise disturbed blocks count as well.
_ENOUGH_BLOCKS, _FEWEST_BLOCKS = 6, 3
# Least share that is named as a disturbance.
_WORTH_NAMING = DISTURBING / 2


@dataclass(frozen=True, slots=True)
class Noise:
    """Activity of others during a block; shares are of the usable cores, 0 to 1."""

    foreign: float = 0.0
    """Share taken by processes that are not the trial's."""
    stolen: float = 0.0
    """Share that the hypervisor gave to other machines."""
    stopped: int = 0
    """Number of times that the process was stopped and continued."""
    gpu: str = ""
    """Reason for a lowered GPU clock, or the other user of the GPU."""
    power_capped: bool = False
    """True if the power limit held the GPU's clock back, which is usual and no disturbance."""
    clock_mhz: int | None = None
    """Clock of the GPU's processors at the end of the block; None if NVML does not report it."""
    joules: float | None = None
    """Energy of the GPU in the block, or of the CPU that trains; None if nothing measures it."""
    memory_bytes: int | None = None
    """Memory in use at the end of the block: of tensors on an accelerator, else what no file holds
    of the process and its workers; None if unknown."""
    watched: bool = True
    """False if the shares are unknown, as off Linux."""
    spare: float = 0.0
    """Idle share beyond one idle core."""

    @property
    def taken(self) -> float:
        """Return `foreign` if it may have slowed the trial down, else 0.

        Other programs slow a trial down only if they leave it fewer cores than it can use. More
        than one idle core shows that it needed no more. One idle core does not: the trial may wait
        in between, for data or for its slowest thread.
        """
        return self.foreign if self.spare <= DISTURBING else 0.0

    @property
    def disturbs(self) -> bool:
        """Return True if a timing under this noise is not to be trusted."""
        return self.taken + self.stolen > DISTURBING or self.stopped > 0 or bool(self.gpu)


QUIET = Noise()


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive training steps between two synchronisations of the device."""

    seconds: float
    """Length of the block, without epoch boundaries."""
    samples: int
    wait_seconds: float
    """Part of `seconds` in which the loop waited for the DataLoader."""
    stock_samples: int = 0
    """Part of `samples` that came from prefetched batches and was not loaded meanwhile; below 0 if
    more was loaded than trained on."""
    has_boundary: bool = False
    """True if an epoch ended within the block."""
    noise: Noise = QUIET

    @property
    def is_disturbed(self) -> bool:
        """Return True if something else may have slowed the trial down."""
        return self.noise.disturbs

    @property
    def counted_samples(self) -> int:
        """Return the samples that were both loaded and trained on in the block."""
        return self.samples - self.stock_samples

    @property
    def seconds_per_sample(self) -> float:
        """Return the seconds for each of `counted_samples`."""
        return self.seconds / self.counted_samples


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of an accelerator when the timing of a process had ended, in bytes."""

    total: int
    free: int
    """Memory that no process holds."""
    reserved: int
    """Peak of what the allocator held, its cache included."""
    allocated: int
    """Peak of the memory of tensors."""
    context: int
    """Memory held outside of the allocator: the driver's context, libraries, and other processes,
    which the driver does not distinguish."""


@dataclass(frozen=True, slots=True)
class LengthCount:
    """Samples among which the longest were found, and those of the dataset."""

    looked_at: int
    dataset: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """A timed training run of one configuration in one process."""

    blocks: tuple[Block, ...]
    """All blocks, disturbed ones too."""
    boundary_seconds: tuple[float, ...]
    """Seconds from the end of each epoch to the first batch of the next."""
    epoch_samples: int | None
    """Samples in one epoch; None if no epoch ended and the dataset has no length."""
    warmup_step_seconds: tuple[float, ...]
    """Seconds of the untimed first steps, each synchronised, in which compilation happens."""
    compile_seconds: float
    """Seconds that torch.compile reports as its own, in the first steps and later; those of the
    user's building are counted here, not in `build_seconds`."""
    start_seconds: float
    """Seconds from process start until torch and the workload were imported."""
    build_seconds: float
    """Seconds for building model, dataset, optimizer and loader: the user's code."""
    peak_memory_bytes: int
    """Peak reserved by the device allocator; on CPU, peak held by the process and its workers."""
    device_memory: DeviceMemory | None = None
    """Memory of the accelerator; None on a CPU, or if the device does not report it."""
    longest_among: LengthCount | None = None
    """Samples whose longest are in the peak memory as one batch; None if no such batch ran."""
    allocator_retries: int = 0
    """Times in the timed blocks that the device allocator freed its cache to avoid running out."""
    steps: StepTimes | None = None
    """Seconds of single steps of the undisturbed blocks; None where only blocks were timed."""
    warmup_samples: int = 0
    """Samples that were trained on before the first block."""
    steady_step_seconds: float | None = None
    """Mean seconds of a warm-up step after the last stall; None: use the fastest step."""
    shared_seconds: float = 0.0
    """Part of `start_seconds` and `build_seconds` that a warm host paid once for all its forks:
    importing the workload and building its dataset."""
    machine_speed: float = 1.0
    """Speed of the machine relative to the start of the search; see
    `autotune.searching.trials.drift`."""
    flags: tuple[str, ...] = ()
    """Remarks on the timing, sorted.

    * short_warm_up: the time ran out during the warm-up
    * clock: the clock jumped
    * recompiled: torch.compile compiled again after the warm-up
    * unsteady: it did so again and again, or the clock kept jumping
    * stopped_early: stopped, because clearly slower than the best trial
    * no_boundary: epoch boundaries are not counted, because a stream has no epoch length
    * uneven: a few slow steps take much of the time, so that disturbed blocks count, too
    * unwatched: the use of the cores by other programs is unknown
    """

    def __post_init__(self) -> None:
        """Add the flag that follows from the blocks: unwatched."""
        if not all(block.noise.watched for block in self.blocks):
            object.__setattr__(self, "flags", tuple(sorted({UNWATCHED, *self.flags})))

    @property
    def nonsense(self) -> str | None:
        """Return a description of an impossible number, or None if there is none."""
        if not self.blocks:
            return "it has no blocks"
        if any(block.seconds <= 0 or block.counted_samples <= 0 for block in self.blocks):
            return "a block without time or samples"
        spans = (*self.boundary_seconds, *self.warmup_step_seconds, self.compile_seconds)
        if min(*spans, *(block.wait_seconds for block in self.blocks)) < 0:
            return "a time below 0"
        if (self.epoch_samples is not None and self.epoch_samples <= 0) or self.machine_speed <= 0:
            return "an epoch without samples or a machine without speed"
        return None

    @property
    def telling_blocks(self) -> tuple[Block, ...]:
        """Return the blocks that count."""
        return telling_blocks(self.blocks, self.flags)

    @property
    def is_disturbed(self) -> bool:
        """Return True if the statistics include disturbed blocks, for lack of others."""
        return any(block.is_disturbed for block in self.telling_blocks)

    @property
    def disturbed_blocks(self) -> int | None:
        """Return the number of disturbed blocks among `telling_blocks`; None if unknown."""
        if UNWATCHED in self.flags:
            return None
        return sum(block.is_disturbed for block in self.telling_blocks)

    @property
    def can_win(self) -> bool:
        """Return True if the timing was completed, so that it may count in a confirmation."""
        return not _CUT_SHORT & set(self.flags)

    @property
    def seconds_per_sample(self) -> float:
        """Return the seconds over the samples of the telling blocks, epoch boundaries included."""
        return ratio_of(self._parts)

    @property
    def samples_per_second(self) -> float:
        """Return the mean throughput: samples over seconds, slow steps included."""
        return 1 / self.seconds_per_sample

    @property
    def joules_per_sample(self) -> float | None:
        """Return the energy of a sample in the undisturbed blocks; None if it was not measured."""
        told = [block.noise.joules for block in self.telling_blocks]
        joules = [one for one in told if one is not None]
        if len(joules) < len(told) or sum(joules) <= 0:
            return None
        return sum(joules) / sum(block.samples for block in self.telling_blocks)

    @property
    def block_rates(self) -> tuple[float, ...]:
        """Return the samples/s of each of `telling_blocks`, epoch boundaries included."""
        return tuple(samples / seconds for seconds, samples in self._parts)

    @property
    def samples_per_second_interval(self) -> Interval:
        """Return the 95 % interval of `samples_per_second` over the blocks of this process."""
        low, high = ratio_interval(self._parts)
        return 1 / high, 1 / low

    @property
    def one_time_seconds(self) -> float:
        """Return the seconds of the first steps beyond the steady state, such as compilation."""
        if not self.warmup_step_seconds:
            return self.compile_seconds
        steady = self.steady_step_seconds or min(self.warmup_step_seconds)
        beyond = sum(self.warmup_step_seconds) - steady * len(self.warmup_step_seconds)
        return max(self.compile_seconds, beyond)

    @property
    def _parts(self) -> list[Part]:
        """Return the seconds and the samples of each telling block, boundaries included."""
        share = 0.0
        if self.boundary_seconds and self.epoch_samples:
            share = fmean(self.boundary_seconds) / self.epoch_samples
        return [
            (block.seconds + share * block.counted_samples, block.counted_samples)
            for block in self.telling_blocks
        ]


def telling_blocks(blocks: tuple[Block, ...], flags: Container[str]) -> tuple[Block, ...]:
    """Return the undisturbed blocks if there are enough of them, else all.

    All count where steps are uneven: the longer a block, the more often it is disturbed, so that
    the slow steps would be left out. Only those in which the process was stopped do not.
    """
    if UNEVEN in flags:
        return tuple(one for one in blocks if not one.noise.stopped) or blocks
    calm = tuple(block for block in blocks if not block.is_disturbed)
    half = max(_FEWEST_BLOCKS, (len(blocks) + 1) // 2)
    return calm if len(calm) >= min(_ENOUGH_BLOCKS, half) else blocks


def seconds_per_sample(blocks: Sequence[Block]) -> float:
    """Return the seconds over the samples of these blocks."""
    return ratio_of([(block.seconds, block.counted_samples) for block in blocks])


def rate_of(runs: Sequence[Measurement]) -> tuple[float, Interval]:
    """Return the mean samples per second of these processes, with its 95 % interval.

    The interval is over the processes; of fewer than four, over all their blocks.
    """
    paces = [(1.0, run.seconds_per_sample) for run in runs]
    blocks = [(1.0, 1 / rate) for run in runs for rate in run.block_rates]
    return ratio_of(paces), ratio_interval(blocks if len(runs) < _ENOUGH_RUNS else paces)


def disturbance_of(runs: Iterable[Measurement]) -> str:
    """Name the disturbances of the blocks behind these runs; empty without any.

    Only noise decides, never rates.
    """
    found = [b.noise for run in runs for b in run.telling_blocks if b.is_disturbed]
    if not found:
        return ""
    stolen = fmean(noise.stolen for noise in found)
    parts = []
    if fmean(noise.taken for noise in found) >= _WORTH_NAMING:
        used = fmean(noise.foreign for noise in found)
        parts.append(f"other programs used {100 * used:.0f} % of the cores")
    if stolen >= _WORTH_NAMING:
        parts.append(f"the host withheld {100 * stolen:.0f} % of the cores")
    if any(noise.stopped for noise in found):
        parts.append("the process was stopped and continued")
    parts += [f"GPU: {reason}" for reason in sorted({noise.gpu for noise in found} - {""})]
    return ", ".join(parts)
