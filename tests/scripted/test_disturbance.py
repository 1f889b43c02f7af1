"""Noise in a block, from counters that a test wrote down: others on the cores, NVML, energy."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml

from autotune.configuration.best_config import read_best
from autotune.report.data import json_text, read_report
from autotune.report.html import page
from autotune.study.archive import find_study
from autotune.training import disturbance
from autotune.values.machine import CpuQuota
from autotune.values.measurement import Noise
from autotune.values.outcome import Inspected, Measured
from children import WORKLOADS, job_for, measured, run_child
from covering import covers
from factories import cuda_machine, measurement
from factories import written as file_with
from reporting import Page
from scripted_runner import FACTS, ScriptedRunner, batch_of, events_of, options_in
from shown_search import lines_of

CPU = torch.device("cpu")
CORES = len(disturbance.own_cores())


def noise_between(before, after):
    readings = iter([before, after])
    return disturbance.NoiseWatch(CPU, lambda: next(readings))()


def times(wall, busy=0.0, stolen=0.0, own=0.0):
    return disturbance.CpuTimes(wall, busy, stolen, own)


START = times(0.0)


@pytest.mark.parametrize(
    ("used", "foreign", "stolen", "disturbs"),
    [
        ({"busy": 10.0, "own": 10.0}, 0.0, 0.0, False),
        ({"busy": 8.0, "own": 5.0}, 0.3, 0.0, True),
        ({"stolen": 2.0}, 0.0, 0.2, True),
        ({"busy": 0.5}, 0.05, 0.0, False),
    ],
    ids=["the trial's own", "others", "the host", "a little of others is always there"],
)
def test_what_others_use_of_the_cores_is_a_share_of_them(used, foreign, stolen, disturbs):
    each = {name: seconds * CORES for name, seconds in used.items()}
    noise = noise_between(START, times(10.0, **each))
    assert (noise.foreign, noise.stolen) == pytest.approx((foreign, stolen), abs=0.01)
    assert (noise.watched, noise.disturbs) == (True, disturbs)


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
def test_others_disturb_where_they_leave_too_few_cores(cores, others, own, disturbs, monkeypatch):
    monkeypatch.setattr(disturbance, "own_cores", lambda: set(range(cores)))
    seconds = 10.0
    used = times(seconds, busy=seconds * (others + own), own=seconds * own)
    noise = noise_between(START, used)
    assert noise.foreign == pytest.approx(others / cores, abs=0.01), "raw, whatever is idle"
    assert noise.disturbs is disturbs


def test_a_block_as_short_as_the_counters_are_coarse_is_not_called_disturbed():
    assert not noise_between(START, times(0.01, busy=0.02)).disturbs


@pytest.mark.parametrize("readings", [(None, None), (START, None), (START, START)])
def test_counters_that_cannot_be_read_leave_a_timing_unwatched(readings):
    assert noise_between(*readings) == Noise(watched=False)


@pytest.mark.parametrize(
    ("own", "others", "disturbs"),
    [
        (2.0, 0.0, False),  # a trial that uses up its quota is throttled, by itself
        (1.5, 0.5, True),  # others in the container use up a quarter of it
        (1.0, 0.5, True),  # and leave half a core, which may be lacking at times
        (1.0, 0.1, False),
    ],
)
def test_under_a_cpu_quota_others_in_the_cgroup_disturb(own, others, disturbs, monkeypatch):
    """A quota of two cores, on a machine of 64 that is nearly idle."""
    monkeypatch.setattr(disturbance, "own_cores", lambda: set(range(64)))
    used = own + others
    before = replace(START, quota_cores=2.0, quota_used=100.0)
    after = times(10.0, busy=10 * used, own=10 * own)
    noise = noise_between(before, replace(after, quota_cores=2.0, quota_used=100 + 10 * used))
    assert noise.watched
    assert noise.disturbs is disturbs


def test_under_a_cpu_quota_a_full_machine_disturbs_as_ever(monkeypatch):
    monkeypatch.setattr(disturbance, "own_cores", lambda: set(range(64)))
    before = replace(START, quota_cores=2.0)
    after = replace(times(10.0, busy=640.0, own=10.0), quota_cores=2.0, quota_used=10.0)
    assert noise_between(before, after).disturbs


def test_the_used_part_of_a_quota_is_read_from_the_cgroup(tmp_path, monkeypatch):
    used = tmp_path / "cpu.stat"
    used.write_text("usage_usec 5000000\nuser_usec 1\n")
    found = CpuQuota(0.5, used, tmp_path / "none")
    monkeypatch.setattr(disturbance, "_quota", lambda: found)
    read = disturbance.read_cpu_times(time.perf_counter)
    assert (read.quota_cores, read.quota_used) == (0.5, 5.0)
    used.unlink()
    assert disturbance.read_cpu_times(time.perf_counter) is None, "nobody can tell what others used"


def test_a_process_that_was_stopped_knows_it():
    seen = disturbance.watch(CPU, time.perf_counter)
    os.kill(os.getpid(), signal.SIGCONT)
    assert seen().stopped == 1
    assert seen().stopped == 0
    blind = disturbance.NoiseWatch(CPU, lambda: None)
    os.kill(os.getpid(), signal.SIGCONT)
    assert blind() == Noise(stopped=1, watched=False)


def test_the_counters_of_this_machine_see_a_busy_neighbour_and_not_oneself():
    # Others may be busy while it is alone, but not each time.
    assert any(_sees_a_neighbour() for _ in range(5))


def _sees_a_neighbour():
    seen = disturbance.watch(CPU, time.perf_counter)
    _spin(0.6)
    alone = seen()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour:
        detached = _others()
        _spin(0.6)
        beside = detached()
        neighbour.kill()
    return beside.foreign > alone.foreign + 0.2 / CORES


def _others():
    """A watch to which the children of this process are strangers."""

    def read():
        found = disturbance.read_cpu_times(time.perf_counter)
        assert found is not None
        own = os.times()
        return disturbance.CpuTimes(found.wall, found.busy, found.stolen, own.user + own.system)

    return disturbance.NoiseWatch(CPU, read)


def _spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


THERMAL, POWER, IDLE = 0x20, 0x80, 0x1
CAP, HARDWARE = 0x4, 0x8
NOBODY_HERE = 1 << 30


class NVMLError(Exception):
    """The error that the library raises."""


def nvml(reasons=0, pids=(), fails=False):
    """The part of pynvml that is asked."""

    def processes(_):
        if fails:
            raise NVMLError
        return [SimpleNamespace(pid=pid) for pid in pids]

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: reasons,
        nvmlDeviceGetComputeRunningProcesses=processes,
        nvmlDeviceGetClockInfo=lambda *_: 1410,
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
def test_the_reason_why_a_gpu_is_slow_is_named(library, says):
    found = disturbance._gpu_noise(library, handle=None)
    assert found == Noise(gpu=says, clock_mhz=1410)
    assert found.disturbs is bool(says)


def test_a_clock_at_the_power_limit_is_noted_and_disturbs_nobody():
    found = disturbance._gpu_noise(nvml(CAP), handle=None)
    assert found == Noise(power_capped=True, clock_mhz=1410)
    assert not found.disturbs
    assert disturbance._gpu_noise(nvml(CAP | THERMAL), handle=None).gpu == "thermal"


def test_a_card_that_tells_no_clock_is_no_disturbance():
    library = nvml()
    library.nvmlDeviceGetClockInfo = _refuse
    assert disturbance._gpu_noise(library, handle=None) == Noise()


def _refuse(*_):
    raise NVMLError


@pytest.fixture
def powercap(tmp_path):
    """Write the folders of the kernel: names of zones, each with its microjoules."""

    def write(**zones):
        for name, microjoules in zones.items():
            number, _, named = name.partition("_")
            zone = tmp_path / f"intel-rapl:{number[1:].replace('z', ':')}"
            zone.mkdir(exist_ok=True)
            (zone / "name").write_text(named.replace("_", "-") + "\n")
            (zone / "energy_uj").write_text(f"{microjoules}\n")
        return tmp_path

    return write


def spending(joules, rate=100.0):
    """A measurement each of whose blocks took so much energy."""
    run = measurement(rate)
    return replace(run, blocks=tuple(replace(b, noise=Noise(joules=joules)) for b in run.blocks))


def less_for_large(config, phase):
    """Larger batches are faster and take less energy: at a batch of 8, 64 J a block of 32."""
    batch = batch_of(config)
    return Measured(spending(512 / batch, batch))


def test_packages_are_summed_and_their_parts_and_the_platform_are_left_out(powercap):
    zones = {"z0_package_0": 5_000_000, "z1_package_1": 7_000_000}
    root = powercap(**zones, z0z0_core=1_000_000, z2_psys=90_000_000)
    meter = disturbance.EnergyMeter(lambda: disturbance.package_energy(root))
    powercap(z0_package_0=6_500_000, z1_package_1=7_250_000, z0z0_core=2_000_000)
    assert meter() == 1.75
    assert meter() == 0.0


def test_counters_that_are_not_there_or_not_readable_tell_nothing(powercap, monkeypatch, tmp_path):
    assert disturbance.EnergyMeter(lambda: disturbance.package_energy(tmp_path / "none"))() is None
    root = powercap(z0_package_0=1)

    def refuse(path):
        if path.name == "energy_uj":  # as kernels do to all but root
            raise PermissionError
        return "package-0"

    monkeypatch.setattr(disturbance, "_text", refuse)
    assert disturbance.EnergyMeter(lambda: disturbance.package_energy(root))() is None


def test_a_gpu_counts_millijoules():
    told = iter([1_000, 13_500])
    nvml = SimpleNamespace(
        NVMLError=NVMLError, nvmlDeviceGetTotalEnergyConsumption=lambda _: next(told)
    )
    meter = disturbance.EnergyMeter(lambda: disturbance.gpu_energy(nvml, "handle"))
    assert meter() == 12.5
    nvml.nvmlDeviceGetTotalEnergyConsumption = _refuse
    assert disturbance.EnergyMeter(lambda: disturbance.gpu_energy(nvml, "handle"))() is None


def test_a_counter_that_began_again_tells_nothing_of_that_block():
    told = iter([5.0, 1.0, 3.0])
    meter = disturbance.EnergyMeter(lambda: next(told))
    assert meter() is None
    assert meter() == 2.0


@pytest.mark.parametrize(("joules", "each"), [(4.0, 0.125), (None, None), (0.0, None)])
def test_energy_of_a_sample_is_that_of_the_blocks(joules, each):
    """A counter that did not move has told nothing: no training is without energy."""
    assert spending(joules).joules_per_sample == each


def test_it_is_told_wherever_the_answer_is(tmp_path):
    inspected = Inspected(cuda_machine(), FACTS)
    events = events_of(options_in(tmp_path), ScriptedRunner(less_for_large, inspected=inspected))
    assert "  energy      2 -> 0.125 J per sample (the GPU)" in lines_of(events)
    written = yaml.safe_load((tmp_path / "best.yaml").read_text())["evidence"]
    assert written["baseline"]["joules_per_sample"] == 2.0
    assert written["best"]["joules_per_sample"] == 0.125
    data = read_report(find_study(str(tmp_path)))
    assert ("energy", "2 -> 0.125 J per sample (the GPU)") in data.facts
    trials = json.loads(json_text(data))["trials"]
    assert {one["joules_per_sample"] for one in trials} == {2.0, 1.0, 0.5, 0.25, 0.125}
    assert "0.125 Jyours 2, of the GPU" in " ".join(Page(page(data)).text.split())


def test_nothing_is_said_where_nothing_tells(tmp_path):
    lines = lines_of(events_of(options_in(tmp_path), ScriptedRunner()))
    assert "energy" not in "\n".join(lines)
    assert "joules" not in (tmp_path / "best.yaml").read_text()
    assert read_best(tmp_path / "best.yaml").evidence.joules_per_sample is None
    assert "Energy" not in Page(page(read_report(find_study(str(tmp_path))))).text


COUNTS = """
import itertools
from autotune.training import disturbance

joules = itertools.count()
disturbance.package_energy = lambda: float(next(joules))
"""


def test_a_child_tells_the_energy_of_each_of_its_blocks(tmp_path):
    """Its counter, which few machines let anyone read, is a joule further at each reading."""
    counting = file_with(tmp_path, (WORKLOADS / "plain.py").read_text() + COUNTS, "counts.py")
    run = measured(run_child(tmp_path, job_for(counting)))
    blocks = run.blocks
    assert [block.noise.joules for block in blocks] == [1.0] * len(blocks)
    samples = sum(block.samples for block in blocks)
    assert run.joules_per_sample == pytest.approx(len(blocks) / samples)
