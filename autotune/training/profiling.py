"""Profile training: time each phase of a step by itself, and watch the loop of a model.py.

The stages are loading, copying, computing and updating. Under the same settings, training is about
as fast as its slowest stage or slower. A stage that takes next to no time is not worth tuning.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.profiler import profile, schedule
from torch.utils.data import DataLoader, Dataset, IterableDataset

from autotune.configuration.job import Diagnose, MeasurePlan
from autotune.training.batches import Batches, endless
from autotune.training.ranks import Lap
from autotune.training.tasks import LoadedJob
from autotune.training.timing import StepRequests, Timer, drive, synchronize, timer_on
from autotune.training.training_setup import (
    DatasetTooSmallError,
    TrainingSetup,
    build_dataset,
    build_loader,
    step_apart,
)
from autotune.training.watching import Watch
from autotune.values.measurement import Block, seconds_per_sample
from autotune.values.outcome import Diagnosed, Loading, Profiled, TrialOutcome

# Batches that are loaded beside training; the first one may open files.
_BATCHES = 4
# Steps that are timed one by one, fewer where these take longer than some seconds.
_TIMED, _FEWEST_TIMED = 5, 2
_MOST_SECONDS = 3.0
# Steps that the profiler records, and those before a training is watched.
_PROFILED, _WARM_UP = 5, 10


def diagnose(loaded: LoadedJob, task: Diagnose) -> TrialOutcome:
    """Time the stages under the job's configuration, one after the other; all in seconds a batch.

    Raises:
        WorkloadError: the workload built something of the wrong type, or too small a dataset.
    """
    loaded.folder.enter_phase("diagnosis")
    plan = task.plan
    dataset = build_dataset(loaded.workload)
    setup = loaded.setup(dataset, loaded.job.seed)
    setup.model.train()
    raw = next(iter(setup.loader))
    batches = itertools.repeat(setup.transfer(raw))  # the same one for each step, without loading
    compute, exchange = _seconds(setup, setup.step, batches, plan, setup.batches_per_step), None
    if setup.ddp is not None:
        apart = _seconds(setup, step_apart(setup), batches, plan, setup.batches_per_step)
        exchange = max(0.0, compute - apart)
    timer = timer_on(_batches(setup, batches), setup.device, setup.world)
    each = setup.loader.batch_size or 1
    stages = stages_of(timer, setup.device, None, each, setup.batches_per_step)
    phases = drive(stages, partial(setup.step, batches))
    assert phases is not None
    return replace(
        phases,
        compute_seconds=compute,
        processes=setup.world.size,
        exchange_seconds=exchange,
        transfer_seconds=0.0
        if setup.device.type == "cpu"
        else _seconds(setup, lambda _: setup.transfer(raw), batches, plan),
        loading=tuple(_loading(loaded, setup, dataset, count, plan) for count in task.workers),
        double_compute_seconds=_double(loaded, setup, dataset, plan),
        profiled=_watched(setup, task.watch_seconds) if task.watch_seconds else None,
    )


def _seconds(
    setup: TrainingSetup,
    step: Callable[[Any], object],
    source: Iterable[Any],
    plan: MeasurePlan,
    batches_per_step: int = 1,
) -> float:
    """Return the mean seconds of a step for each of its batches.

    Several processes take such steps at the same time, each with batches of its own.
    """
    batches = _batches(setup, source)
    timer = timer_on(batches, setup.device, setup.world)

    def timing() -> StepRequests[tuple[Block, ...]]:
        warm_up = yield from timer.together(timer.warming_up(plan))
        blocks = timer.timing_blocks(plan, warm_up.calm_seconds, batches_per_step)
        return (yield from timer.together(blocks))

    return setup.world.size * seconds_per_sample(drive(timing(), partial(step, batches)))


def _batches(setup: TrainingSetup, source: Iterable[Any]) -> Batches:
    return Batches(source, time.perf_counter, partial(synchronize, setup.device))


def stages_of(
    timer: Timer,
    device: torch.device,
    loader: DataLoader[Any] | None,
    batch_size: int,
    batches_per_step: int,
) -> StepRequests[Diagnosed | None]:
    """Ask for steps and time their phases; None if one cannot be separated from the others.

    Each phase is timed within whole steps. On an accelerator, waiting for it before and after a
    step separates the phases. Without the loader that feeds training, getting batches is a part of
    computing.
    """
    begun = list[float]()

    def begin_update(*_: object) -> None:
        timer.batches.synchronize()
        begun.append(timer.batches.clock())

    laps = yield from single_laps(timer)
    apart: Callable[..., Any] = torch.compiler.disable  # a script may compile its step
    hook = register_optimizer_step_pre_hook(apart(begin_update))
    updates = yield from single_laps(timer)
    hook.remove()
    is_accelerator = device.type != "cpu"
    kernels = (yield from _kernel_seconds(device)) if is_accelerator else (0.0, None)
    if not laps or not updates or (loader is not None and kernels is None):
        return None
    loading: tuple[Loading, ...] = ()
    if loader is not None:
        waited = median(lap.wait_seconds for lap in laps) / batches_per_step
        seconds = _seconds_to_load(loader) if loader.num_workers else waited
        if seconds is None:
            return None
        loading = (Loading(0, seconds),)
    copied, busy = kernels or (0.0, None)
    computed = median(lap.seconds - lap.wait_seconds for lap in laps) - copied
    launched = median(lap.launched_seconds - lap.wait_seconds for lap in laps)
    return Diagnosed(
        batch_size=batch_size,
        compute_seconds=max(1e-9, computed / batches_per_step),
        double_compute_seconds=None,
        transfer_seconds=copied / batches_per_step,
        loading=loading,
        optimizer_seconds=median(_since_last(begun, lap) for lap in updates) / batches_per_step,
        launch_seconds=launched / batches_per_step if is_accelerator else None,
        busy_seconds=None if busy is None else busy / batches_per_step,
    )


def _since_last(begun: Iterable[float], lap: Lap) -> float:
    """Return the seconds from the last of these times within a lap to its end; 0 without one."""
    within = (at for at in begun if lap.ended - lap.seconds < at < lap.ended)
    return lap.ended - max(within, default=lap.ended)


def _seconds_to_load(loader: DataLoader[Any]) -> float | None:
    """Return the seconds in which this process loads one of the batches that workers load.

    None if that is not known.
    """
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a worker has
    seconds: list[float] = []
    try:
        by_itself = DataLoader(
            loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn
        )
        batches = iter(by_itself)
        while len(seconds) < _BATCHES and sum(seconds) <= _MOST_SECONDS:
            start = time.perf_counter()
            if next(batches, None) is None:
                break
            seconds.append(time.perf_counter() - start)
    except Exception:  # the user's dataset may not allow it here
        return None
    finally:
        torch.set_num_threads(threads)
    return median(seconds[1:] or seconds) if seconds else None


def single_laps(timer: Timer) -> StepRequests[list[Lap]]:
    """Ask for some steps, each on an idle device; return those that begin no epoch.

    One step at a time: a deep model's second step would wait for room in the device's queue, and
    waiting looks like launching.
    """
    found: list[Lap] = []
    first = timer.batches.clock()
    for _ in range(2 * _TIMED):
        is_enough = len(found) >= _FEWEST_TIMED and timer.batches.clock() - first > _MOST_SECONDS
        if timer.world.told(len(found) >= _TIMED or is_enough):
            break
        lap = yield from timer.lap(1)
        if not lap.has_boundary:
            found.append(lap)
    return found


def _kernel_seconds(device: torch.device) -> StepRequests[tuple[float, float] | None]:
    """Ask for steps; return the seconds of one in which data is copied, and kernels run.

    None without a profiler.
    """
    if device.type != "cuda":
        return None
    # Without its warm-up it would time itself.
    phases = schedule(wait=1, warmup=2, active=_PROFILED)
    try:
        with profile(schedule=phases) as profiler:
            for _ in range(3 + _PROFILED):
                yield 1
                synchronize(device)
                profiler.step()
    except RuntimeError:  # a container may lack the rights or the library
        return None
    events = list(profiler.events())
    busy = busy_seconds(events, _PROFILED)
    return None if busy is None else (copy_seconds(events, _PROFILED), busy)


def busy_seconds(events: Iterable[Any], steps: int) -> float | None:
    """Return the seconds of a step in which at least one kernel runs; None if none was seen.

    Kernels of several streams may overlap, so that their seconds cannot be added up. `events` of
    the profiler, with times in microseconds, are of so many `steps`.
    """
    spans = sorted(
        (one.time_range.start, one.time_range.end)
        for one in events
        if one.device_type.name == "CUDA"
        and not (one.is_user_annotation or one.key.startswith("ProfilerStep"))
    )
    busy, until = 0.0, -math.inf
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy / 1e6 / steps if spans else None


def copy_seconds(events: Iterable[Any], steps: int) -> float:
    """Return the seconds of a step in which data is copied to the device; see `busy_seconds`."""
    spans = (one.time_range for one in events if one.key.startswith("Memcpy HtoD"))
    return float(sum(span.end - span.start for span in spans)) / 1e6 / steps


def _double(
    loaded: LoadedJob, setup: TrainingSetup, dataset: Dataset[Any], plan: MeasurePlan
) -> float | None:
    """Return the seconds of a step on a batch of twice the size; None if that does not work.

    A compiled model is left out: its graph would be in the cache for a trial of that batch. So are
    several processes: where one fails, the others would wait for it.
    """
    if loaded.config["compile_mode"] is not None or not loaded.world.is_alone:
        return None
    double = 2 * (setup.loader.batch_size or 1)
    config = loaded.config.replace(batch_size=double, num_workers=0, accumulation_steps=1)
    try:
        loader = build_loader(config, loaded.workload, dataset, loaded.job.seed)
        batches = itertools.repeat(setup.transfer(next(iter(loader))))
        return _seconds(setup, setup.step, batches, plan, setup.batches_per_step)
    except (DatasetTooSmallError, StopIteration, RuntimeError, ValueError, TypeError):
        return None


def _loading(
    loaded: LoadedJob, setup: TrainingSetup, dataset: Dataset[Any], workers: int, plan: MeasurePlan
) -> Loading:
    """Time the loading of a batch with `workers` workers while nothing else runs.

    An epoch's first batch is made when the epoch begins, which is loading, too. So epochs follow
    each other without a boundary, and workers outlive them.
    """
    config = loaded.config.replace(num_workers=workers, persistent_workers=workers > 0)
    loader = build_loader(config, loaded.workload, dataset, loaded.job.seed, loaded.world)
    return Loading(workers, _seconds(setup, next, endless(loader), plan))


def _watched(setup: TrainingSetup, seconds: float) -> Profiled:
    """Watch the training with its loader, after some steps to warm up."""
    batches = _batches(setup, setup.loader)
    for _ in range(_WARM_UP):
        setup.step(batches)
    watch = Watch(batches, setup.device, setup.world)
    return drive(watch.watching(seconds), partial(setup.step, map(watch.look, batches)))
