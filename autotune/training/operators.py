"""Which operators take the time of a training step: torch's own profiler, apart from any timing."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from autotune.job import Profile
from autotune.outcome import Operator, Profiled, TrialOutcome
from autotune.training.apply import build_dataset
from autotune.training.batches import endless
from autotune.training.tasks import Bench

# The profiler's first steps are its own warm-up: without them it times itself.
_SCHEDULE = {"wait": 1, "warmup": 2, "active": 5}
_MOST = 15


def profile_steps(bench: Bench, task: Profile) -> TrialOutcome:
    """Profile a few steps of the job's configuration, after as many that are not looked at."""
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
    """Those that take most, by their own time on the device, or on the CPU where there is none.

    On a device, kernels count and not what launched them; annotations of whole steps never do.
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
