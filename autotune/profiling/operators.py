"""Profile a training step by operator with torch's profiler, apart from any timing."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from autotune.configuration.job import Profile
from autotune.training.apply import build_dataset
from autotune.training.batches import endless
from autotune.training.tasks import Bench
from autotune.values.outcome import Operator, Profiled, TrialOutcome

# Steps of the profiler; without its warm-up it would time itself.
_SCHEDULE = {"wait": 1, "warmup": 2, "active": 5}
_MOST = 15


def profile_steps(bench: Bench, task: Profile) -> TrialOutcome:
    """Profile a few steps under the job's configuration, after the task's warm-up steps.

    Side effect: writes a Chrome trace to the task's `trace_path`, if it names one.
    """
    bench.folder.enter_phase("profile")
    setup = bench.setup(build_dataset(bench.workload), bench.job.seed)
    setup.model.train()
    batches = endless(setup.loader)
    activities = [ProfilerActivity.CPU]
    if setup.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    for batch in itertools.islice(batches, task.warmup_steps):
        setup.step(batch)
    with profile(activities=activities, schedule=schedule(**_SCHEDULE)) as profiler:
        for batch in itertools.islice(batches, sum(_SCHEDULE.values())):
            setup.step(batch)
            if setup.device.type != "cpu":
                torch.accelerator.synchronize(setup.device)
            profiler.step()
    if task.trace_path is not None:
        profiler.export_chrome_trace(str(Path(task.trace_path)))
    return Profiled(_operators(profiler.key_averages(), setup.device.type != "cpu"))


def _operators(averages: Any, on_device: bool) -> tuple[Operator, ...]:
    """Return the operators with most time of their own, on the device or else on the CPU.

    On a device its kernels count, not the CPU operators that launched them. Annotations of whole
    steps never count.
    """
    kind = "CUDA" if on_device else "CPU"
    attribute = "self_device_time_total" if on_device else "self_cpu_time_total"
    counted = [
        (one.key, int(one.count), float(getattr(one, attribute)))
        for one in averages
        if one.device_type.name == kind and not _annotates(one)
    ]
    total = sum(microseconds for _, _, microseconds in counted) or 1.0
    steps = _SCHEDULE["active"]
    return tuple(
        Operator(name, calls, microseconds / 1e6 / steps, microseconds / total)
        for name, calls, microseconds in sorted(counted, key=lambda one: -one[2])[:_MOST]
        if microseconds > 0
    )


def _annotates(event: Any) -> bool:
    return bool(event.is_user_annotation) or event.key.startswith("ProfilerStep")
