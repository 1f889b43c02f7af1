"""What one child process observed while it trained. Raw numbers are stored, statistics derived."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from autotune.intervals import Interval, log_median, median_interval

# Share of the usable cores that others may take, or the host may withhold, unnoticed. A quiet
# machine stays below a third of it; one busy process on two cores takes half.
DISTURBING = 0.1
# Flags of a timing that did not run its course.
_CUT_SHORT = frozenset({"raced", "unsteady"})
# An interval needs as many blocks; with fewer undisturbed ones, the disturbed ones count as well.
_ENOUGH_BLOCKS = 6


@dataclass(frozen=True, slots=True)
class Noise:
    """What else went on during a block; shares are of the cores that may be used."""

    foreign: float = 0.0
    """CPU time of processes that are not the trial's."""
    stolen: float = 0.0
    """CPU time that a hypervisor gave to other machines."""
    pressure: float = 0.0
    """Share of the time in which some process waited for a core, the trial's own included."""
    stopped: int = 0
    """Times that the process was stopped and continued."""
    gpu: str = ""
    """Why the GPU's clock was lowered, or who else used it."""
    watched: bool = True
    """Whether the shares were looked at; else, as under a CPU quota, nobody knows them."""

    @property
    def disturbs(self) -> bool:
        """Whether a timing under it is not to be trusted."""
        return self.foreign + self.stolen > DISTURBING or self.stopped > 0 or bool(self.gpu)


QUIET = Noise()


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive training steps between two synchronisations of the device."""

    seconds: float
    """Epoch boundaries excluded."""
    samples: int
    wait_seconds: float
    """The part of `seconds` in which the loop waited for the DataLoader."""
    stock_samples: int = 0
    """Those of `samples` that came from what lay ready and were not loaded meanwhile."""
    has_boundary: bool = False
    """Whether an epoch ended within."""
    noise: Noise = QUIET

    @property
    def is_disturbed(self) -> bool:
        """Whether something else slowed the machine down."""
        return self.noise.disturbs

    @property
    def seconds_per_sample(self) -> float:
        """Per sample that was both loaded and trained on."""
        return self.seconds / (self.samples - self.stock_samples)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A timed training run of one configuration in one process."""

    blocks: tuple[Block, ...]
    """All of them, disturbed ones too."""
    boundary_seconds: tuple[float, ...]
    """From the end of one epoch to the first batch of the next, one value per boundary seen."""
    epoch_samples: int | None
    """Samples in one epoch; None where no epoch ended and the dataset does not know its length."""
    warmup_step_seconds: tuple[float, ...]
    """Untimed first steps, each synchronised: compilation and cuDNN's search happen here."""
    compile_seconds: float
    """The part of the warm-up that torch.compile reports as its own."""
    start_seconds: float
    """From process start until torch and the workload were imported."""
    build_seconds: float
    """Building model, dataset, optimizer and loader: the user's own code."""
    peak_memory_bytes: int
    """Reserved by the device allocator; on CPU, held by the process and its workers."""
    allocator_retries: int = 0
    """Times the device allocator had to give memory back and try again: the edge of OOM."""
    steady_step_seconds: float | None = None
    """What a step of the warm-up took after its last stall, on average; None: the fastest one."""
    machine_speed: float = 1.0
    """How fast the machine was, relative to the search's beginning; see `autotune.tuning.drift`."""
    flags: tuple[str, ...] = ()
    """short_warm_up (time was up), clock (jumped), recompiled (after the warm-up), unsteady (again
    and again), raced (given up early, because clearly slower than the best trial). From the fields
    above follow no_boundary (what lies between epochs is not charged, because a stream does not
    tell how long one is) and unwatched (nobody could tell whether others used the cores)."""

    def __post_init__(self) -> None:
        """Flag what the numbers leave out, so that it stands wherever flags do."""
        facts = {
            "no_boundary": bool(self.boundary_seconds) and self.epoch_samples is None,
            "unwatched": not all(block.noise.watched for block in self.blocks),
        }
        found = {flag for flag, holds in facts.items() if holds}
        object.__setattr__(self, "flags", tuple(sorted(found.union(self.flags))))

    @property
    def nonsense(self) -> str | None:
        """What no clock can have shown and no loader given, or None."""
        if not self.blocks:
            return "it has no blocks"
        if any(b.seconds <= 0 or b.samples - b.stock_samples <= 0 for b in self.blocks):
            return "a block without time or samples"
        spans = (*self.boundary_seconds, *self.warmup_step_seconds, self.compile_seconds)
        if min(*spans, *(block.wait_seconds for block in self.blocks)) < 0:
            return "a time below 0"
        if (self.epoch_samples is not None and self.epoch_samples <= 0) or self.machine_speed <= 0:
            return "an epoch without samples or a machine without speed"
        return None

    @property
    def telling_blocks(self) -> tuple[Block, ...]:
        """The undisturbed blocks, where there are enough of them; else all."""
        calm = tuple(block for block in self.blocks if not block.is_disturbed)
        return calm if len(calm) >= min(_ENOUGH_BLOCKS, len(self.blocks)) else self.blocks

    @property
    def disturbed_blocks(self) -> int | None:
        """How many of the blocks that the numbers rest on were disturbed; None: nobody looked."""
        if "unwatched" in self.flags:
            return None
        return sum(block.is_disturbed for block in self.telling_blocks)

    @property
    def can_win(self) -> bool:
        """Whether the timing ran its course, so that it may count in a round of a contest."""
        return not _CUT_SHORT & set(self.flags)

    @property
    def seconds_per_sample(self) -> float:
        """Median over blocks on a log scale, plus each sample's share of the epoch boundary."""
        return log_median(self._per_sample()) + self._boundary_share()

    @property
    def samples_per_second(self) -> float:
        """Throughput at the median block, so that one hiccup does not count."""
        return 1 / self.seconds_per_sample

    @property
    def block_rates(self) -> tuple[float, ...]:
        """Throughput of each telling block, epoch boundaries charged."""
        share = self._boundary_share()
        return tuple(1 / (seconds + share) for seconds in self._per_sample())

    @property
    def samples_per_second_interval(self) -> Interval:
        """95 % interval of `samples_per_second` from the order of the blocks."""
        return median_interval(self.block_rates)

    @property
    def wait_share(self) -> float:
        """Share of the timed seconds in which training waited for data, 0 to 1."""
        return sum(block.wait_seconds for block in self.blocks) / sum(
            block.seconds for block in self.blocks
        )

    @property
    def one_time_seconds(self) -> float:
        """What the first steps cost beyond the steady state: compilation, searches, allocation."""
        if not self.warmup_step_seconds:
            return self.compile_seconds
        steady = self.steady_step_seconds or min(self.warmup_step_seconds)
        return max(0.0, sum(self.warmup_step_seconds) - steady * len(self.warmup_step_seconds))

    def _per_sample(self) -> list[float]:
        return [block.seconds_per_sample for block in self.telling_blocks]

    def _boundary_share(self) -> float:
        if not self.boundary_seconds or not self.epoch_samples:
            return 0.0
        return median(self.boundary_seconds) / self.epoch_samples
