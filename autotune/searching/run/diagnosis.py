"""Find the stage that bounds training, the knobs that cannot matter, and what else costs time.

The first two follow from the time that each phase of a step takes by itself. A cost that is
negligible with slow computing may matter with a fast one. A knob is frozen only if it could gain
nothing even with the largest batch of the space and the fastest computing that its settings may
bring. How a larger batch computes is assumed where it was not timed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from autotune.configuration.evidence import Stage
from autotune.configuration.job import Diagnose, MeasurePlan
from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.knobs.base import Value, spelled
from autotune.process.runner import Runner
from autotune.study.study import TuningStudy
from autotune.values.machine import Machine
from autotune.values.outcome import Diagnosed, Doing, Failure, Profiled, WorkloadFacts, as_failure
from autotune.values.text import size, span

LOADER = ("num_workers", "prefetch_factor", "persistent_workers", "in_order")
"""Knobs of the data loader."""
COMPUTE = (
    "amp_dtype",
    "float32_matmul_precision",
    "compile_mode",
    "channels_last",
    "cudnn_benchmark",
    "optimizer_impl",
    "compile_dynamic",
    "compile_scope",
    "sdpa_backend",
)
"""Knobs that change how fast a batch is computed."""
EXCHANGE = ("ddp_bucket_mb", "gradient_as_bucket_view", "ddp_comm_dtype")
"""Knobs that change how several processes exchange gradients and buffers."""
NEGLIGIBLE = 0.03
"""Relative gain that is not worth a trial: less than the noise of most machines."""
# Computing with the fastest settings over that with the user's own: on a GPU, in half precision or
# with many more threads, and with the other settings on a CPU.
_MOST_SPEEDUP, _MOST_SPEEDUP_ON_CPU = 4.0, 2.0
# A step with twice the batch over one with the batch, on a CPU where it was not timed.
_DOUBLE_ON_CPU = 1.5
# Half of a step is arithmetic if one with twice the batch takes so many times as long, or, where
# none was timed, if it lasts so many seconds. Loading of so small a share leaves it the cores.
_HALF_WORK, _LONG_STEP, _HARDLY_LOADS = 1.5, 0.02, 0.1
# Relative error of one timing; two timings of the same may differ by twice as much.
_NOISE = 0.05
# Under the same settings, training is as fast as its slowest stage at most. Two processes of the
# same settings differ by up to a third; a larger excess means that the stages were timed wrongly.
_FAR_FASTER = 1.5
# Share of a step from which on a GPU counts as busy all the time.
_BUSY = 0.9
# Spare workers for batches that take longer than others.
_SPARE = 1.25
# Share of the memory that a dataset may take, and of a step from which on launching bounds it.
_DATASET, _SMALL_OPERATORS = 1 / 4, 0.2
# Reads of a step that are told though a CPU pays nothing, and more compilations than are usual.
_MANY_READS, _OFTEN = 4, 3
# How many times as much memory each half of the steps leaves in use; more on a CPU, whose heap
# grows for a while in any training. And tensors that each step leaves behind.
_GROWN, _GROWN_ON_CPU, _LEFT = 1.05, 1.25, 0.5
_MOST_PLACES, _NAMED = 3, 0.01


@dataclass(frozen=True)
class Diagnosis:
    """The timed stages of the baseline, and what follows from them."""

    stages: Diagnosed
    machine: Machine
    baseline: TrainingConfig
    largest_offered: int
    """The largest batch size of the search space."""
    reached: float | None = None
    """Samples per second of all stages together; None where that is not known."""
    rate_unit: str = "samples/s"  # steps/s where a script's samples are unknown
    most_speedup: float = _MOST_SPEEDUP
    """Upper bound of how many times as fast other settings of the space compute a batch."""

    @property
    def load_seconds(self) -> float:
        """Seconds to load a batch in one process; 0 if no loader feeds training."""
        return self.stages.loading[0].seconds if self.stages.loading else 0.0

    @property
    def fastest_load_seconds(self) -> float:
        """Fewest seconds per batch: as timed with workers, or as one worker per core would take."""
        cores = max(1, self.machine.host.usable_cores // self.stages.processes)
        return min((self.load_seconds / cores, *(one.seconds for one in self.stages.loading)))

    @property
    def bound(self) -> Stage:
        """The stage that training waits for with the user's own settings."""
        limits = self.stage_limits()
        return min(limits, key=lambda stage: limits[stage])

    def stage_limits(self) -> dict[Stage, float]:
        """Return the samples per second of each stage by itself, with the baseline's workers."""
        workers = int(self.baseline["num_workers"] or 0)
        loading = {one.num_workers: one.seconds for one in self.stages.loading}
        seconds: dict[Stage, float] = {
            "loading": loading.get(workers, self.load_seconds / max(1, workers)),
            "copying": self.stages.transfer_seconds,
            "launching": self.stages.launch_seconds or 0.0,
            "computing": self.stages.compute_seconds,
        }
        if self.is_launch_bound:
            # A step on a resident batch then takes as long as its launching.
            seconds["launching"] = self.stages.compute_seconds
            seconds["computing"] = self.stages.busy_seconds or self.stages.compute_seconds
        return {stage: self.stages.samples / s for stage, s in seconds.items() if s > 0}

    @property
    def busy_share(self) -> float | None:
        """Share of a step's seconds in which kernels run on the GPU; None if not known."""
        if self.stages.busy_seconds is None:
            return None
        return min(1.0, self.stages.busy_seconds / self.stages.compute_seconds)

    @property
    def is_launch_bound(self) -> bool:
        """True if the GPU waits for Python to launch the kernels of a step.

        Launching then takes as long as the step, or with the kernels after it. Where the profiler
        tells how long these run, launching takes longer, and the GPU is idle for part of the step.
        """
        launch, busy = self.stages.launch_seconds, self.stages.busy_seconds
        if launch is None:
            return False
        is_all = launch + (busy or 0.0) >= (1 - 2 * _NOISE) * self.stages.compute_seconds
        return is_all and launch > (busy or 0.0) and (self.busy_share or 0.0) < _BUSY

    @property
    def reached_share(self) -> float | None:
        """Throughput of training over that of its slowest stage; None if not known."""
        return None if self.reached is None else self.reached / self.stage_limits()[self.bound]

    @property
    def doubt(self) -> str | None:
        """Reason not to trust the stages: training is far faster than the slowest; None if not."""
        share = self.reached_share
        if share is None or share < _FAR_FASTER:
            return None
        return (
            f"training reaches {100 * share:.0f} % of what {self.bound} reached by itself: "
            "something else ran while the phases were timed, or their batch is a slow one"
        )

    @property
    def compute_limit(self) -> float:
        """Samples per second of computing by itself, with the baseline's settings."""
        return self.stages.samples / self.stages.compute_seconds

    def frozen(self) -> dict[str, str]:
        """Return the knobs that cannot gain anything worth a trial, each with the reason."""
        found: dict[str, str] = {}
        stages, fastest = self.stages, self.fastest_compute_seconds
        least = NEGLIGIBLE / self.most_speedup * stages.compute_seconds
        if (
            self._at_most(self.load_seconds) < NEGLIGIBLE * fastest
            and not self.baseline["num_workers"]
        ):
            share = _share(self.load_seconds, stages.compute_seconds)
            found |= dict.fromkeys(LOADER, f"loading takes {share} of computing")
        copying = self._at_most(stages.transfer_seconds)
        if self.machine.has_accelerator and copying < NEGLIGIBLE * fastest:
            share = _share(stages.transfer_seconds, stages.compute_seconds)
            found["pin_memory"] = f"copying takes {share} of computing"
        # On a CPU, workers and computing share the cores.
        loader_bound = self.fastest_load_seconds > (1 + 2 * _NOISE) * stages.compute_seconds
        if self.machine.has_accelerator and loader_bound:
            why = (
                f"the loader makes {stages.samples / self.fastest_load_seconds:.4g} samples/s "
                f"at most, less than the {self.compute_limit:.4g} that computing reaches"
            )
            found |= dict.fromkeys(COMPUTE, why)
        elif stages.optimizer_seconds < least:
            share = _share(stages.optimizer_seconds, stages.compute_seconds)
            found["optimizer_impl"] = f"the optimizer takes {share} of a step"
        exchange = stages.exchange_seconds
        # Faster computing leaves the exchange as it is.
        if exchange is not None and exchange < least:
            share = _share(exchange, stages.compute_seconds)
            found |= dict.fromkeys(EXCHANGE, f"the gradient all-reduce takes {share} of a step")
        return found

    def batch_rates(self, sizes: Iterable[Value]) -> dict[Value, float]:
        """Return the samples per second to expect of each batch size under the user's settings.

        The fastest number of workers counts. Empty if a larger batch's seconds are not known.
        """
        seconds = {size: self._step_seconds(int(size or 1)) for size in sizes}
        return {size: int(size or 1) / taken for size, taken in seconds.items() if taken}

    def _step_seconds(self, batch_size: int) -> float | None:
        """Return the seconds of a step, with the loading and copying of its samples; None if open.

        A batch of size B computes in a + b B seconds, or where none of twice the size was timed, in
        those of the baseline's. Some of a step never grows, however noisy its timing: `a` is a
        twentieth of the baseline's step or more. Kernels on a GPU take c B.
        """
        stages, times = self.stages, batch_size / self.stages.batch_size
        compute, double, busy = (
            stages.compute_seconds,
            stages.double_compute_seconds,
            stages.busy_seconds,
        )
        if double is None and busy is None:
            return None
        each = 0.0 if double is None else min(max(0.0, double - compute), (1 - _NOISE) * compute)
        seconds = max(compute - each + each * times, (busy or 0.0) * times)
        seconds += stages.transfer_seconds * times
        if not self.baseline["num_workers"]:
            return seconds + self.load_seconds * times
        return max(seconds, self.fastest_load_seconds * times)

    def useless(
        self, domains: Mapping[str, Sequence[Value]]
    ) -> Iterator[tuple[str, set[Value], str]]:
        """Yield knobs, each with values that cannot gain anything, and the reason."""
        # More workers gain nothing even with the fastest computation.
        needed = _SPARE * self._at_most(self.load_seconds) / self.fastest_compute_seconds
        most = 2 * math.ceil(needed)
        more = {value for value in domains["num_workers"] if int(value or 0) > most}
        yield "num_workers", more, f"no faster than {most}"
        launch, compute = self.stages.launch_seconds, self.stages.compute_seconds
        if launch is not None and launch < compute / self.most_speedup:
            # These modes add CUDA graphs to another mode, which only save launching.
            graphs: set[Value] = {"reduce-overhead"}
            if "max-autotune-no-cudagraphs" in domains["compile_mode"]:
                graphs.add("max-autotune")
            why = f"launching a step takes {_share(launch, compute)} of computing it"
            yield "compile_mode", graphs, why

    @property
    def fastest_compute_seconds(self) -> float:
        """Lower bound of the seconds that computing the largest batch may take.

        A step of batch size B takes a + b B seconds. b comes from timing the baseline's batch and
        one twice as large, less the noise of both timings. The sum is divided by `most_speedup`.
        """
        compute, double = self.stages.compute_seconds, self.stages.double_compute_seconds
        if double is None:  # as in a script, which chooses its batch itself
            double = compute if self.machine.has_accelerator else _DOUBLE_ON_CPU * compute
        each = max(0.0, (1 - _NOISE) * double - (1 + _NOISE) * compute)
        return (compute - each + each * self._growth) / self.most_speedup

    @property
    def paying_threads(self) -> int:
        """Threads, as far as a process has cores, up to which each is expected to pay; or 1."""
        compute, double = self.stages.compute_seconds, self.stages.double_compute_seconds
        is_work = compute >= _LONG_STEP if double is None else double >= _HALF_WORK * compute
        hardly_loads = self.load_seconds <= _HARDLY_LOADS * compute and self.stages.loading
        if self.machine.has_accelerator or not (is_work and hardly_loads):
            return 1
        cores = self.machine.host.usable_cores // self.stages.processes
        return max(1, min(cores, self.machine.default_num_threads))

    @property
    def _growth(self) -> float:
        """The largest batch size of the space over the baseline's."""
        return max(1.0, self.largest_offered / self.stages.batch_size)

    def _at_most(self, seconds: float) -> float:
        """Return the seconds for the largest batch of a stage that handles samples one by one."""
        return seconds * self._growth


def limits_of(stages: Diagnosed) -> dict[str, float]:
    """Return the samples per second of each stage by itself, except those that take no time."""
    loading = sorted(stages.loading, key=lambda one: one.num_workers)
    seconds = {
        **{f"loader, num_workers={one.num_workers}": one.seconds for one in loading},
        "copy to device": stages.transfer_seconds,
        "launch": stages.launch_seconds or 0.0,
        "compute": stages.compute_seconds,
        "compute, kernels": stages.busy_seconds or 0.0,
        "optimizer step": stages.optimizer_seconds,
    }
    return {name: stages.samples / s for name, s in seconds.items() if s > 0}


def most_speedup(space: SearchSpace, machine: Machine) -> float:
    """Return how many times as fast as the user's settings those of `space` may compute a batch."""
    halves = set(space.domains["amp_dtype"]) != {None}
    halves = halves or len(space.domains["float32_matmul_precision"]) > 1
    threads = [int(count) for count in space.domains["num_threads"] if count]
    more = max(threads, default=1) / min(threads, default=1) > _MOST_SPEEDUP_ON_CPU
    is_plain = not (machine.has_accelerator or halves or more)
    return _MOST_SPEEDUP_ON_CPU if is_plain else _MOST_SPEEDUP


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2g} %"


def narrowed(space: SearchSpace, diagnosis: Diagnosis) -> SearchSpace:
    """Return the space without values that cannot matter, with what to expect of others.

    The baseline stays inside.
    """
    if diagnosis.doubt:
        return space.noted([f"nothing is left out: {diagnosis.doubt}"])
    domains = dict(space.domains)
    notes = list(space.notes)
    for name, reason in diagnosis.frozen().items():
        if len(domains[name]) > 1:
            own = diagnosis.baseline[name]
            # An idle knob has a value outside its domain.
            domains[name] = (own,) if own in domains[name] else domains[name][:1]
            notes.append(f"{name} stays {spelled(domains[name][0])}: {reason}")
    for name, useless, reason in diagnosis.useless(domains):
        own = diagnosis.baseline[name]
        dropped = [value for value in domains[name] if value != own and value in useless]
        if dropped:
            notes.append(f"{name}={', '.join(map(spelled, dropped))} dropped: {reason}")
        domains[name] = tuple(value for value in domains[name] if value not in dropped)
    is_full = diagnosis.baseline["amp_dtype"] is None
    return replace(
        space,
        domains=domains,
        notes=tuple(notes),
        batch_rates=diagnosis.batch_rates(domains["batch_size"]),
        launch_seconds=diagnosis.stages.launch_seconds if is_full else None,
        paying_threads=diagnosis.paying_threads,
    )


_SECONDS, _FEWEST_SECONDS, _SHARE = 90.0, 15.0, 1 / 10
# The diagnosis needs orders of magnitude only.
_PLAN = MeasurePlan(block_seconds=0.1, block_counts=(3,))


def noted_diagnosis(context: SearchContext, study: TuningStudy) -> Diagnosis | None:
    """Return the diagnosis that the study holds; None if it holds none."""
    stages, runs = study.notes.diagnosis, study.notes.baseline_runs
    reached = median(run.samples_per_second for run in runs) if runs else None
    return None if stages is None else diagnosis_of(context, stages, reached)


def diagnosis_of(context: SearchContext, stages: Diagnosed, reached: float | None) -> Diagnosis:
    """Return the diagnosis of the baseline's stages.

    `reached` is the samples per second of training as a whole; None if not known.
    """
    sizes = [int(size or 1) for size in context.space.domains["batch_size"]]
    of = (context.machine, context.baseline, max(sizes), reached, context.rate_unit)
    return Diagnosis(stages, *of, most_speedup(context.space, context.machine))


def time_stages(
    context: SearchContext, runner: Runner, watch_seconds: float = 0.0
) -> Diagnosed | Failure:
    """Time each stage of the baseline on its own, unless they have been observed."""
    if (known := context.traits.stages(context.processes)) is not None:
        return known
    cores = max(1, context.machine.host.usable_cores // context.processes)
    workers = tuple(dict.fromkeys((0, min(cores, 2), max(1, cores // 2))))
    if context.facts.workers_obstacle:
        workers = (0,)  # more would load other samples
    seconds = min(_SECONDS, context.options.budget.trial_timeout_seconds)
    if (budget := context.time_budget_seconds) is not None:
        building = 2 * context.start_seconds
        seconds = min(seconds, max(_FEWEST_SECONDS, _SHARE * budget) + building)
    job = context.job(Diagnose(_PLAN, workers, watch_seconds), context.baseline, seconds)
    outcome = runner.run(job, context.options.study.folder / "trials" / "diagnosis")
    return outcome if isinstance(outcome, Diagnosed) else as_failure(outcome)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a training's time goes to, with its remedy."""

    name: str
    share: float | None
    """Share of the time that it costs, 0 to 1; None if it ends a long run instead."""
    evidence: str
    change: str
    """Change of the code that mends it, an imperative."""
    settings: Sequence[str] = ()
    """Settings that may mend it, too, and that a search varies."""


@dataclass(frozen=True)
class ProfiledTraining:
    """All that a profile knows of a training."""

    seen: Profiled
    facts: WorkloadFacts
    machine: Machine
    space: SearchSpace
    """The search space, less what cannot matter."""
    memory_limit_bytes: int
    diagnosis: Diagnosis | None = None
    """The phases of a step; None if they are not known."""

    def findings(self) -> list[Finding]:
        """Return what ends a run, then what costs 3 % of the time or more, the costliest first."""
        found = (*self._of_memory(), *self._of_data(), *self._of_steps(), *self._of_the_loop())
        varied = self.space.varied().keys()
        worth = [
            replace(one, settings=[name for name in one.settings if name in varied])
            for one in found
            if not one.share or one.share >= NEGLIGIBLE
        ]
        return sorted(worth, key=lambda one: -2.0 if one.share is None else -one.share)

    def _of_memory(self) -> Iterator[Finding]:
        used, left = self.seen.memory, self.seen.kept_graphs
        told = [f"{left:.2g} tensors a step are kept with their graph"] if left >= _LEFT else []
        grown = _GROWN if self.machine.has_accelerator else _GROWN_ON_CPU
        if len(used) > 1 and all(grown * one < later for one, later in pairwise(used)):
            more = used[-1] - used[0]
            each = size(more // max(1, self.seen.steps))
            full = self.seen.seconds * max(0, self.memory_limit_bytes - used[-1]) / more
            told.insert(0, f"by {each} a step, reaching the limit in {span(full)}")
        if told:
            change = "keep loss.item() or loss.detach() instead of the loss, and empty lists"
            yield Finding("memory that grows", None, "; ".join(told), change)
        if retries := self.seen.allocator_retries:
            freed = f"it had no memory left and freed its cache {retries} times"
            change = "use smaller batches, or PYTORCH_ALLOC_CONF=expandable_segments:True"
            settings = ("batch_size", "env.PYTORCH_ALLOC_CONF")
            yield Finding("retries of the allocator", 0.0, freed, change, settings)

    def _of_data(self) -> Iterator[Finding]:
        seen, facts = self.seen, self.facts
        wait, (_, lines) = self._share(seen.wait_seconds), self._spent("loading")
        if wait:
            own = self.diagnosis.baseline if self.diagnosis else facts.baseline
            told = f"num_workers={own['num_workers']}{lines and ', '}{lines}"
            change = "make samples cheaper, for example by storing them decoded"
            settings = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
            yield Finding("waiting for data", wait, told, change, settings)
        held = (facts.dataset_samples or 0) * facts.sample_bytes
        copied = self.diagnosis.stages.transfer_seconds if self.diagnosis else 0.0
        saved = self._share(seen.wait_seconds + copied * self._batches)
        if 0 < held <= _DATASET * self.memory_limit_bytes and saved:
            told = f"its {facts.dataset_samples} samples are {size(held)} as tensors"
            change = "load them to the device once and index batches there (unless augmented)"
            yield Finding("a dataset that fits into memory", saved, told, change)
        if seen.padding:
            told = f"{percent(seen.padding)} of the positions of token IDs or masks"
            change = "pad to a batch's longest sample, and put samples of like length together"
            yield Finding("padding", seen.padding * (1 - wait), told, change)

    def _of_steps(self) -> Iterator[Finding]:
        seen, own = self.seen, self.seen.own
        share, told = self._launching()
        if share >= _SMALL_OPERATORS:
            change = "use larger batches, and fewer but larger operators"
            settings = ("batch_size", "compile_mode", "optimizer_impl")
            yield Finding("launching many small operators", share, told, change, settings)
        if own is not None and own.is_uneven:
            told = f"{percent(own.slow / own.count)} of the steps take three times as long or more"
            told += f", the longest one in {seen.slow_line}" if seen.slow_line else ""
            share = self._share(own.slow_seconds - own.slow * own.median_seconds)
            change = "check what these do differently: other shapes, garbage collection"
            yield Finding("uneven steps", share, told, change, ("compile_dynamic", "gc"))
        if seen.compilations >= _OFTEN:
            told = f"code was compiled {seen.compilations} times after the first steps"
            change = "keep shapes and arguments the same, or mark those that change as dynamic"
            yield Finding("recompilation", seen.compile_share, told, change, ("compile_dynamic",))

    def _of_the_loop(self) -> Iterator[Finding]:
        accelerated, reads = self.machine.has_accelerator, self.seen.reads
        share, lines = self._spent("reading")
        most = sorted(filter(None, reads), key=lambda line: -reads[line])[:_MOST_PLACES]
        told = ", ".join(f"{line} ({reads[line]:.3g} a step)" for line in most) or lines
        change = "add up on the device, and call .item(), .cpu() or print() every 50 steps"
        if accelerated and share >= NEGLIGIBLE:
            yield Finding("reading tensors in the loop", share, told, change)
        elif not accelerated and sum(reads.values()) >= _MANY_READS:
            told += ": costs nothing on a CPU, but on a GPU each read waits for the device"
            yield Finding("reading tensors in the loop", 0.0, told, change)
        share, lines = self._spent("writing")
        if share:
            change = "write less often, or in another thread"
            yield Finding("checkpoints and logging in the loop", share, lines, change)

    def _launching(self) -> tuple[float, str]:
        """Return the share of the time that launching costs, and the evidence."""
        seen, diagnosis = self.seen, self.diagnosis
        if diagnosis is not None and diagnosis.bound == "launching":
            idle = 1 - (diagnosis.busy_share or 0.0)
            return idle, f"the GPU waits for Python in {percent(idle)} of a step"
        if self.machine.has_accelerator or seen.own is None:
            return 0.0, ""
        share = seen.operators * seen.operator_seconds / max(seen.own.median_seconds, 1e-9)
        each = f"{1e6 * seen.operator_seconds:.2g} microseconds even on one number"
        share = min(1.0, share) * (1 - self._share(seen.wait_seconds))
        return share, f"{seen.operators:.0f} a step, each of which takes {each}"

    @property
    def _batches(self) -> float:
        """Batches that were trained on meanwhile; 0 if that is not known."""
        if self.diagnosis is None or self.diagnosis.reached is None:
            return 0.0
        return self.seen.seconds * self.diagnosis.reached / self.diagnosis.stages.samples

    def _share(self, seconds: float) -> float:
        """Return the share of the time that was watched; of a GPU's, no more than it may idle."""
        busy = (self.diagnosis.stages.busy_seconds or 0.0) if self.diagnosis else 0.0
        idle = self.seen.seconds - busy * self._batches
        return max(0.0, min(idle, seconds) / max(self.seen.seconds, 1e-9))

    def _spent(self, doing: Doing) -> tuple[float, str]:
        """Return the share of the time of an activity, and the lines that take most of it."""
        seconds = self.seen.spent.get(doing, {})
        shares = {line: self._share(each) for line, each in seconds.items() if line}
        longest = sorted(shares, key=lambda line: -shares[line])[:_MOST_PLACES]
        told = (f"{line} ({percent(shares[line])})" for line in longest if shares[line] >= _NAMED)
        return self._share(sum(seconds.values())), ", ".join(told)


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.0f} %"
