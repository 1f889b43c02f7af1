"""NVML tells of a GPU during a block: throttled, shared with others, or nothing."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import cycle
from types import SimpleNamespace

import pytest

from autotune.report.html import page
from autotune.searching.run.search_run import details_of
from autotune.study.finished import FinishedTrial
from autotune.training.disturbance import _gpu_noise
from autotune.values.measurement import Noise
from autotune.values.outcome import Measured
from covering import covers
from factories import measurement
from reporting import report_of, trial

THERMAL, POWER, IDLE = 0x20, 0x80, 0x1
CAP, HARDWARE = 0x4, 0x8
NOBODY_HERE = 1 << 30


class NVMLError(Exception):
    """The error that the library raises."""


def nvml(reasons: int = 0, pids: tuple[int, ...] = (), fails: bool = False) -> SimpleNamespace:
    """The part of pynvml that is asked."""

    def processes(_: object) -> list[SimpleNamespace]:
        if fails:
            raise NVMLError
        return [SimpleNamespace(pid=pid) for pid in pids]

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: reasons,
        nvmlDeviceGetComputeRunningProcesses=processes,
        nvmlDeviceGetClockInfo=lambda *_: 1410,
        nvmlDeviceGetPowerUsage=lambda _: 350_250,
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=64, memory=20),
        NVML_CLOCK_SM=1,
        nvmlClocksThrottleReasonSwThermalSlowdown=THERMAL,
        nvmlClocksThrottleReasonHwThermalSlowdown=0x40,
        nvmlClocksThrottleReasonHwPowerBrakeSlowdown=POWER,
        nvmlClocksThrottleReasonHwSlowdown=HARDWARE,
        nvmlClocksThrottleReasonSwPowerCap=CAP,
    )


@covers("T21")
@pytest.mark.parametrize(
    ("library", "says"),
    [
        (nvml(), ""),
        (nvml(IDLE), ""),
        (nvml(THERMAL), "thermal"),
        (nvml(THERMAL | POWER), "thermal, power"),
        (nvml(pids=(os.getpid(),)), ""),
        (nvml(pids=(os.getpid(), NOBODY_HERE)), "other processes"),
        (nvml(pids=(NOBODY_HERE,)), ""),
        (nvml(THERMAL, fails=True), "thermal"),
        (nvml(HARDWARE), "hardware slowdown"),
        (nvml(HARDWARE | POWER), "power"),
    ],
    ids=[
        *("quiet", "idle", "hot", "hot and braked", "mine", "shared", "container"),
        *("no list of processes", "older", "braked"),
    ],
)
def test_the_reason_why_a_gpu_is_slow_is_named(library: SimpleNamespace, says: str) -> None:
    found = _gpu_noise(library, handle=None)
    assert found == Noise(gpu=says, clock_mhz=1410, watts=350, gpu_busy=0.64)
    assert found.disturbs is bool(says)


def test_a_clock_at_the_power_limit_is_noted_and_disturbs_nobody() -> None:
    found = _gpu_noise(nvml(CAP), handle=None)
    assert found == Noise(power_capped=True, clock_mhz=1410, watts=350, gpu_busy=0.64)
    assert not found.disturbs
    assert _gpu_noise(nvml(CAP | THERMAL), handle=None).gpu == "thermal"


def test_a_card_that_tells_no_clock_is_no_disturbance() -> None:
    library = nvml()
    for name in (
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetUtilizationRates",
    ):
        setattr(library, name, _refuse)
    assert _gpu_noise(library, handle=None) == Noise()


def _refuse(*_: object) -> int:
    raise NVMLError


def busy_at(number: int, *shares: float | None) -> FinishedTrial:
    """A trial with these readings in its blocks."""
    made = trial(number, 100.0 + number)
    run = measurement(100.0)
    noises = cycle(Noise(gpu_busy=share) for share in shares)
    blocks = tuple(replace(block, noise=next(noises)) for block in run.blocks)
    details = details_of(Measured(replace(run, blocks=blocks)), 2.0)
    return replace(made, details=details)


def test_the_report_says_how_busy_the_gpu_was_in_the_fastest_trials() -> None:
    shown = page(report_of([trial(0), busy_at(1, 0.5, 0.6, 0.7), busy_at(2, None)]))
    (table,) = re.findall(r"<caption>The fastest trials.*?</table>", shown, re.DOTALL)
    assert "GPU busy</th>" in table
    assert table.count('<td class="number">60 %</td>') == 1
    on_a_cpu = page(report_of([trial(0), trial(1, 200.0)]))
    assert "GPU busy" not in on_a_cpu
