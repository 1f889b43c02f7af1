"""The rows of probes.py: each checks one assumption of autotune, by public means.

A check returns a text of what was seen, and a verdict: True if that is as expected, False if not,
None if this machine cannot tell.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WORKLOADS = Path(__file__).parent / "workloads"
ANSWER = Path(__file__).with_name("probe_answer.yaml")
Look = Callable[["Place", Path], tuple[str, bool | None]]


@dataclass(frozen=True)
class Place:
    """Device and size of a probe."""

    device: str
    short: bool

    def sized(self, whole: int, short: int) -> int:
        """Return `short` in a short run, else `whole`."""
        return short if self.short else whole


@dataclass(frozen=True)
class Row:
    """One check."""

    name: str
    expected: str
    """The assumption, in words."""
    look: Look
    """Function that checks it."""
    seconds: float
    """Timeout of the check."""
    needs_cuda: bool = True
    alone: bool = False
    """True if nothing may run beside it, because it is timed."""


def network(width: int = 64) -> nn.Module:
    """Return a small network."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def residual(place: Place) -> tuple[nn.Module, Tensor, Tensor]:
    """Return ResNet-50 and a batch of images and labels; in a short run, a smaller network."""
    from torchvision.models import resnet18, resnet50

    short = place.short
    model = (resnet18 if short else resnet50)().to(place.device)
    side = 32 if short else 224
    images = torch.randn(place.sized(64, 4), 3, side, side, device=place.device)
    return model, images, torch.randint(1000, (len(images),), device=place.device)


def stepper(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], Tensor]:
    """Return a function that runs one training step with AdamW and returns the loss."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def seconds_of(work: Callable[[], object]) -> float:
    """Run `work`; return the seconds until the device is idle."""
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def kept_outputs(place: Place, _: Path) -> tuple[str, bool | None]:
    """C1: Check that outputs kept by an evaluation stay valid, after `prepare` with CUDA graphs."""
    import autotune

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file was not made on this machine
        best = autotune.load(ANSWER)
        best.apply_to_process()
    plain = network().to(place.device)
    model = best.prepare(plain)
    batches = [torch.randn(8, 64, device=place.device) for _ in range(4)]
    if not place.short:
        for batch in batches:  # training records the graphs
            model(batch).sum().backward()
        batches.append(torch.randn(3, 64, device=place.device))  # a smaller last batch
    with torch.no_grad():
        kept = [model(batch) for batch in batches]
        again = [plain[2](plain[0](batch).relu()) for batch in batches]
    error = max(float((a - b).abs().max()) for a, b in zip(kept, again, strict=True))
    seen = f"{len(kept)} outputs were kept; they differ from eager ones by {error:.1g} at most"
    if place.device != "cuda":
        return f"{seen}; no CUDA graphs here, so that says nothing of them", None
    return seen, error < 1e-2


def compile_seconds(mode: str) -> Look:
    """C2: Return a check that times the first steps of a compiled ResNet-50, without a cache."""

    def look(place: Place, folder: Path) -> tuple[str, bool | None]:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
        os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
        model, images, labels = residual(place)
        step = stepper(torch.compile(model, mode=mode), images, labels)
        first, rest = seconds_of(step), [seconds_of(step) for _ in range(3)]
        return f"{mode}: first step {first:.1f} s, then {rest[0]:.2f}, {rest[2]:.3f} s", first < 60

    return look


def missing_compiler(_: Place, folder: Path) -> tuple[str, bool | None]:
    """C3: Check the output of `autotune settings` if PATH has no compiler."""
    environ = {k: v for k, v in os.environ.items() if k not in ("CC", "CXX", "PATH")}
    command = [sys.executable, "-m", "autotune", "settings"]
    done = subprocess.run(
        command, env={**environ, "PATH": str(folder)}, capture_output=True, text=True, check=False
    )
    lines = [line.strip() for line in done.stdout.splitlines()]
    said = next((line for line in lines if line.startswith("compile_mode")), "")
    seen = " ".join(said.split())[:200] or f"exit {done.returncode}: {done.stderr[-200:]}"
    return seen, "frozen" in said and "compiler" in said


def launches(place: Place, _: Path) -> tuple[str, bool | None]:
    """C4: Compare the seconds to launch 1, 3 and 10 steps with those of their kernels."""
    step = stepper(*residual(place))
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    each = {}
    for steps in (1, 3, 10):
        tries = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(steps):
                step()
            tries.append((time.perf_counter() - start) / steps)
            torch.cuda.synchronize()
        each[steps] = sorted(tries)[2]
    whole = seconds_of(lambda: [step() for _ in range(10)]) / 10
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        seconds_of(step)
    kernels = sum(e.self_device_time_total for e in profile.key_averages()) / 1e6
    ms = {steps: f"{1000 * seconds:.1f}" for steps, seconds in each.items()}
    seen = (
        f"launching a step takes {ms[1]} ms where 1 is launched, {ms[3]} of 3, {ms[10]} of 10; a "
        f"step {1000 * whole:.1f} ms, kernels {1000 * kernels:.1f} ms"
    )
    return seen, each[1] < 0.8 * each[10] and kernels > each[1]


def scaled_steps(place: Place, _: Path) -> tuple[str, bool | None]:
    """C6: Count the hook calls of optimizers, fused or not, whose steps GradScaler skips."""
    counts = {}
    for fused in (False, True):
        model = network().to(place.device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
        hooks: list[int] = []
        optimizer.register_step_post_hook(lambda *_, seen=hooks: seen.append(1))
        scaler = torch.amp.GradScaler(place.device, init_scale=2.0**40)  # skips the first steps
        for _ in range(70):
            optimizer.zero_grad()
            with torch.autocast(place.device, dtype=torch.float16):
                loss = model(torch.randn(8, 64, device=place.device)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        counts[fused] = len(hooks)
    seen = f"70 batches: {counts[False]} hooks of a plain optimizer, {counts[True]} of a fused one"
    return seen, counts[False] < 70 == counts[True]


def retries(place: Place, _: Path) -> tuple[str, bool | None]:
    """C10: Count allocator retries with cuDNN's benchmark mode under a limit of 2 GiB."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((2 << 30) / total)
    torch.backends.cudnn.benchmark = True
    model, images, labels = residual(Place(place.device, short=False))
    step = stepper(model, images[:8], labels[:8])

    def count() -> int:
        return int(torch.cuda.memory_stats().get("num_alloc_retries", 0))

    seconds_of(lambda: [step() for _ in range(5)])
    warm = count()
    seconds_of(lambda: [step() for _ in range(30)])
    steady = count() - warm
    held, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    seen = (
        f"{warm} in 5 steps of warm-up, {steady} in 30 steps after it; "
        f"allocated {held >> 20} MiB, reserved {reserved >> 20} MiB of 2048"
    )
    return seen, steady == 0


def listed_processes(_: Place, __: Path) -> tuple[str, bool | None]:
    """C12: Check that NVML lists this process, while it computes."""
    import pynvml

    held = torch.zeros(1 << 28, device="cuda")
    torch.cuda.synchronize()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    listed = [(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    used = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
    own = os.getpid() in [pid for pid, _ in listed]
    seen = (
        f"{len(listed)} listed, this one {'' if own else 'not '}among them; {used >> 20} MiB in "
        f"use, {held.nbytes >> 20} of them known to be ours, GPU {busy} % busy"
    )
    return seen, own


def sustained(place: Place, _: Path) -> tuple[str, bool | None]:
    """C14: Compare the rate of bf16 products in the first 3 s with the last 10 s."""
    side = 8192
    left, right = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(10):
        torch.mm(left, right)
    torch.cuda.synchronize()
    meter, rows = Meter(), []
    for _ in range(place.sized(40, 14)):
        start, products = time.perf_counter(), 0
        while time.perf_counter() - start < 1:
            for _ in range(20):
                torch.mm(left, right)
            torch.cuda.synchronize()
            products += 20
        rate = products * 2 * side**3 / (time.perf_counter() - start) / 1e12
        rows.append((rate, *meter.read()))

    def told(part: list[Any]) -> str:
        return " ".join(f"{rate:.0f}/{clock}/{watts}" for rate, clock, watts in part)

    first = sum(row[0] for row in rows[:3]) / 3
    last = sum(row[0] for row in rows[-10:]) / 10
    seen = f"last 10 s / first 3 s {last / first:.4f}; TFLOP/s, MHz, W each second: {told(rows)}"
    return seen, abs(last / first - 1) < 0.02


class Meter:
    """Reader of clock and power by NVML."""

    def __init__(self) -> None:
        self.nvml: Any = None
        with suppress(Exception):
            import pynvml

            pynvml.nvmlInit()
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.nvml = pynvml

    def read(self) -> tuple[int | None, int | None]:
        """Return the clock in MHz and the power in W; None if NVML does not tell."""
        try:
            clock = self.nvml.nvmlDeviceGetClockInfo(self.handle, self.nvml.NVML_CLOCK_SM)
            return clock, self.nvml.nvmlDeviceGetPowerUsage(self.handle) // 1000
        except Exception:  # not installed, or not allowed in this container
            return None, None


ROWS = (
    Row("C1", "outputs kept under CUDA graphs are what eager gives", kept_outputs, 100, False),
    Row("C3", "a missing compiler is said before a mode is tried", missing_compiler, 100, False),
    Row("C6", "a skipped step calls no hook, a fused optimizer's always", scaled_steps, 100, False),
    Row("C10", "no allocator retry after the warm-up", retries, 40),
    Row("C12", "NVML lists the process that computes", listed_processes, 30),
    Row(
        "C4",
        "one step alone shows what launching takes, ten fill the queue",
        launches,
        40,
        alone=True,
    ),
    Row("C14", "the rate of the first 3 s holds", sustained, 60, alone=True),
    *(
        Row("C2", "a cold compilation within a minute", compile_seconds(mode), 200, alone=True)
        for mode in ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
    ),
)
