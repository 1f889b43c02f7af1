"""Other users of the machine are told from counters that a test wrote down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from autotune.training import disturbance
from autotune.training.disturbance import (
    CpuTimes,
    NoiseWatch,
    Quota,
    own_cores,
    read_cpu_times,
    watch,
)
from autotune.values.machine import CpuQuota
from autotune.values.measurement import Noise

CPU = torch.device("cpu")
CORES = len(own_cores())


def noise_between(before: CpuTimes | None, after: CpuTimes | None) -> Noise:
    readings = iter([before, after])
    return NoiseWatch(CPU, time.perf_counter, lambda: next(readings))()


def times(wall: float, busy: float = 0.0, stolen: float = 0.0, own: float = 0.0) -> CpuTimes:
    return CpuTimes(wall, busy, stolen, own, pressure=0.25 * wall)


START = times(0.0)


def test_a_trials_own_use_is_no_disturbance() -> None:
    noise = noise_between(START, times(10.0, busy=10.0 * CORES, own=10.0 * CORES))
    assert noise == Noise(pressure=0.25)
    assert not noise.disturbs


def test_use_by_others_is_a_share_of_the_cores() -> None:
    noise = noise_between(START, times(10.0, busy=8.0 * CORES, own=5.0 * CORES))
    assert noise.foreign == pytest.approx(0.3, abs=0.01)
    assert noise.disturbs


def test_so_is_what_the_host_withheld() -> None:
    noise = noise_between(START, times(10.0, stolen=2.0 * CORES))
    assert noise.stolen == pytest.approx(0.2)
    assert noise.disturbs


def test_a_little_of_others_is_always_there() -> None:
    assert not noise_between(START, times(10.0, busy=0.5 * CORES)).disturbs


@pytest.mark.parametrize(
    ("cores", "others", "own", "disturbs"),
    [
        (16, 3.0, 4.0, False),  # nine cores are idle
        (16, 8.0, 4.0, False),  # four are, so that the trial wanted no more
        (64, 50.0, 4.0, False),
        (16, 1.6, 14.4, False),  # a tenth, as ever
        (16, 4.0, 12.0, True),  # the trial wants all of them
        (16, 4.0, 10.0, True),
        (4, 1.0, 1.0, False),  # a trial of one thread, with a core to spare beside its neighbour
        (4, 1.0, 3.0, True),
        (2, 0.98, 1.0, True),  # two threads, slowed down by whoever has the other core
        (2, 0.98, 0.6, True),  # which wait for each other
        (2, 0.98, 0.0, True),
        (2, 0.98, 0.1, True),  # or a trial that mostly waits: only one core is left to it
    ],
)
def test_others_disturb_where_they_leave_too_few_cores(
    cores: int, others: float, own: float, disturbs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disturbance, "own_cores", lambda: set(range(cores)))
    seconds = 10.0
    used = times(seconds, busy=seconds * (others + own), own=seconds * own)
    noise = noise_between(START, used)
    assert noise.foreign == pytest.approx(others / cores, abs=0.01), "raw, whatever is idle"
    assert noise.disturbs is disturbs


def test_a_block_as_short_as_the_counters_are_coarse_is_not_called_disturbed() -> None:
    assert not noise_between(START, times(0.01, busy=0.02)).disturbs


@pytest.mark.parametrize("readings", [(None, None), (START, None), (START, START)])
def test_counters_that_cannot_be_read_leave_a_timing_unwatched(
    readings: tuple[CpuTimes | None, CpuTimes | None],
) -> None:
    assert noise_between(*readings) == Noise(watched=False)


def test_a_watched_timing_says_so() -> None:
    assert noise_between(START, times(10.0)).watched


@pytest.mark.parametrize(
    ("own", "others", "disturbs"),
    [
        (2.0, 0.0, False),  # a trial that uses up its quota is throttled, by itself
        (1.5, 0.5, True),  # others in the container use up a quarter of it
        (1.0, 0.5, True),  # and leave half a core, which may be lacking at times
        (1.0, 0.1, False),
    ],
)
def test_under_a_cpu_quota_others_in_the_cgroup_disturb(
    own: float, others: float, disturbs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota of two cores, on a machine of 64 that is nearly idle."""
    monkeypatch.setattr(disturbance, "own_cores", lambda: set(range(64)))
    used = own + others
    before = replace(START, quota=Quota(2.0, 100.0))
    after = times(10.0, busy=10 * used, own=10 * own)
    noise = noise_between(before, replace(after, quota=Quota(2.0, 100 + 10 * used)))
    assert noise.watched
    assert noise.disturbs is disturbs


def test_under_a_cpu_quota_a_full_machine_disturbs_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(disturbance, "own_cores", lambda: set(range(64)))
    before = replace(START, quota=Quota(2.0, 0.0))
    after = replace(times(10.0, busy=640.0, own=10.0), quota=Quota(2.0, 10.0))
    assert noise_between(before, after).disturbs


def test_the_used_part_of_a_quota_is_read_from_the_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = tmp_path / "cpu.stat"
    used.write_text("usage_usec 5000000\nuser_usec 1\n")
    found = CpuQuota(0.5, used, tmp_path / "none")
    monkeypatch.setattr(disturbance, "_quota_folder", lambda: found)
    read = read_cpu_times(time.perf_counter)
    assert read is not None
    assert read.quota == Quota(0.5, 5.0)
    used.unlink()
    assert read_cpu_times(time.perf_counter) is None, "nobody can tell what others used"


def test_a_stop_is_noticed_where_nothing_can_be_read() -> None:
    seen = NoiseWatch(CPU, time.perf_counter, lambda: None)
    os.kill(os.getpid(), signal.SIGCONT)
    assert seen() == Noise(stopped=1, watched=False)


def test_a_process_that_was_stopped_knows_it() -> None:
    seen = watch(CPU, time.perf_counter)
    os.kill(os.getpid(), signal.SIGCONT)
    assert seen().stopped == 1
    assert seen().stopped == 0


def test_the_counters_of_this_machine_see_a_busy_neighbour_and_not_oneself() -> None:
    # Others may be busy while it is alone, but not each time.
    assert any(_sees_a_neighbour() for _ in range(5))


def _sees_a_neighbour() -> bool:
    seen = watch(CPU, time.perf_counter)
    _spin(0.6)
    alone = seen()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour:
        detached = _others()
        _spin(0.6)
        beside = detached()
        neighbour.kill()
    return beside.foreign > alone.foreign + 0.2 / CORES


def _others() -> NoiseWatch:
    """A watch to which the children of this process are strangers."""

    def read() -> CpuTimes | None:
        found = read_cpu_times(time.perf_counter)
        assert found is not None
        own = os.times()
        return CpuTimes(found.wall, found.busy, found.stolen, own.user + own.system, found.pressure)

    return NoiseWatch(CPU, time.perf_counter, read)


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
