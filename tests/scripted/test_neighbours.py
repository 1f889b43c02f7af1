"""One GPU, several programs: locks under whatever name, and who else is on it."""

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from types import SimpleNamespace

import psutil
import pytest

from autotune.commands import execute
from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.context.inspection import inspection
from autotune.process import devices as asked
from autotune.process.devices import Device, DeviceRunner, device_locks, devices_of, neighbours
from autotune.process.stop import Stop
from autotune.searching.run.events import PhaseStarted, Warned
from autotune.searching.search import search
from autotune.values.errors import UsageError
from autotune.values.outcome import Inspected
from covering import covers
from factories import GIB, cuda_machine
from scripted_runner import FACTS, ScriptedRunner, events_of, options_in, unstored_in

UUID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
NOBODY_HERE = 1 << 30


class NVMLError(Exception):
    """The error that the library raises."""


def nvml(*processes, fails=""):
    """The part of pynvml that is asked; `calls` are what it was asked."""
    calls = []

    def said(name, result):
        def call(*arguments):
            calls.append((name, *arguments))
            if name == fails:
                raise NVMLError
            return result

        return call

    running = [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in processes]
    return SimpleNamespace(
        NVMLError=NVMLError,
        calls=calls,
        nvmlInit=said("init", None),
        nvmlShutdown=said("shutdown", None),
        nvmlDeviceGetHandleByUUID=said("handle", "card"),
        nvmlDeviceGetComputeRunningProcesses=said("processes", running),
    )


@pytest.mark.parametrize("uuid", [UUID, f"GPU-{UUID}"])
def test_each_process_is_named_with_what_it_holds(uuid):
    library = nvml((os.getpid(), 2 * GIB), (NOBODY_HERE, None))
    own = psutil.Process().name()
    found = neighbours(uuid, library)
    assert found == [f"{own} ({os.getpid()}, 2 GiB)", f"process ({NOBODY_HERE})"]
    assert ("handle", f"GPU-{UUID}") in library.calls
    assert library.calls[-1] == ("shutdown",)


@pytest.mark.parametrize("fails", ["init", "handle", "processes", "shutdown"])
def test_nobody_is_named_if_the_library_does_not_tell(fails):
    assert neighbours(UUID, nvml(fails=fails)) == []


@pytest.mark.parametrize(("free", "warns"), [(70 * GIB, True), (79 * GIB, False), (None, False)])
def test_a_search_with_less_memory_than_its_limit_says_so(free, warns, tmp_path, monkeypatch):
    monkeypatch.setattr(asked, "_pynvml", nvml)
    inspected = Inspected(cuda_machine(), FACTS, UUID, device_free_bytes=free)
    events = events_of(unstored_in(tmp_path, trials=2), ScriptedRunner(inspected=inspected))
    said = [event.warning for event in events if isinstance(event, Warned)]
    assert bool(said) is warns
    assert not warns or "70 GiB of its memory is free, and a trial may use 73.6 GiB" in said[0]


def test_a_device_that_is_no_gpu_is_not_asked_for():
    library = nvml((1, GIB))
    assert neighbours("", library) == []
    assert library.calls == []


def on_card(number, uuid):
    machine = replace(cuda_machine(), device=f"cuda:{number}")
    return ScriptedRunner(inspected=Inspected(machine, FACTS, uuid))


@pytest.fixture
def _busy(monkeypatch):
    monkeypatch.setattr(asked, "_pynvml", lambda: nvml((NOBODY_HERE, GIB)))


@covers("T21")
@pytest.mark.usefixtures("_busy")
def test_a_search_on_a_busy_gpu_says_so_before_it_measures(tmp_path):
    other = {Device("cuda:1"): on_card(1, UUID.replace("1b", "2c"))}
    options = unstored_in(tmp_path, trials=2, at_once=2)
    events = list(search(options, on_card(0, UUID), None, other))
    begun = next(n for n, event in enumerate(events) if isinstance(event, PhaseStarted))
    warned = [event.warning for event in events[:begun] if isinstance(event, Warned)]
    assert [line.partition(" ")[0] for line in warned] == ["cuda:0", "cuda:1"]
    assert f"process ({NOBODY_HERE}, 1 GiB)" in warned[0]


@covers("T21")
@pytest.mark.usefixtures("_busy")
def test_a_search_of_two_processes_tells_of_the_neighbours_of_both_gpus(tmp_path):
    runner = on_card(0, UUID)
    runner.inspected = replace(runner.inspected, rank_uuids=(UUID, UUID.replace("1b", "2c")))
    events = events_of(unstored_in(tmp_path, trials=2), runner)
    warned = [event.warning for event in events if isinstance(event, Warned)]
    assert [line.partition(" ")[0] for line in warned] == ["cuda:0", "cuda:1"]


def test_one_card_under_two_numbers_is_refused(tmp_path):
    other = {Device("cuda:1"): on_card(1, UUID)}
    with pytest.raises(UsageError, match="cuda:1 and cuda:0 are one device"):
        list(search(unstored_in(tmp_path, at_once=2), on_card(0, UUID), None, other))


HOLDER = """
import sys
from autotune.process.devices import device_locks
with device_locks([sys.argv[1]]):
    print("held", flush=True)
    sys.stdin.read()
"""
TIMED = Job(Measure(MeasurePlan()), "cuda:0", None, TrainingConfig.of({}).as_dict())


@contextmanager
def held_elsewhere(name, environ):
    """Another process that holds a device, in an environment of its own."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.stdin.close()


class NotYetError(Exception):
    """A device is somebody else's."""


def refuse():
    raise NotYetError


@covers("S9")
def test_processes_with_other_folders_meet_and_one_that_is_killed_lets_go(tmp_path):
    name = f"test-{token_hex(4)}"
    elsewhere = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    with held_elsewhere(name, elsewhere) as holder:
        with pytest.raises(NotYetError), device_locks([name], refuse):
            pass
        holder.kill()
        holder.wait()
        with device_locks([name], refuse):
            pass
    assert list(tmp_path.iterdir()) == [], "a lock is no file"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (("cuda:0", (), UUID, "3"), ("cuda:1", (), UUID, "0,3"), True),
        (("cuda:0", (), UUID, f"GPU-{UUID}"), ("cuda:2", (), UUID.upper(), ""), True),
        (("cuda:0", (), UUID, "0"), ("cuda:0", (), UUID.replace("1b", "2c"), "1"), False),
        (("cuda:0", (), "", "3"), ("cuda:1", (), "", "0, 3"), True),
        (("cuda:0", (), "", ""), ("cuda:0", (), "", "1"), False),
        (("cuda:0", (), UUID, "MIG-aa"), ("cuda:0", (), UUID, "MIG-bb"), False),
        (("cuda", (), "", ""), ("cuda:0", (), "", ""), True),
        (("cuda:0", (), "", ""), ("xpu:0", (), "", ""), False),
        (("cpu", (0, 1), "", ""), ("cpu", (1, 0), "", "7"), True),
    ],
    ids=[
        *("masks", "name as a mask", "two cards", "numbers", "number and mask", "slices"),
        *("the first", "makes", "cores"),
    ],
)
def test_one_device_has_one_name_and_two_have_two(one, other, is_same, monkeypatch):
    names = []
    for device, cores, uuid, visible in (one, other):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        names.append(Device(device, cores).locks(uuid))
    assert (names[0] == names[1]) == is_same


def on_card_locks(number, uuid, run, of_ranks=()):
    """A device that has been inspected, and whose trials do `run`."""

    class OnCard(ScriptedRunner):
        def run(self, job, folder):
            if job is TIMED:
                run()
            return super().run(job, folder)

    machine = replace(cuda_machine(), device=f"cuda:{number}")
    inspected = Inspected(machine, None, uuid, of_ranks)
    runner = DeviceRunner(OnCard(inspected=inspected), Device("cuda"))
    runner.run(inspection("cuda", None), Path("inspect"))
    return runner


@covers("S9")
@pytest.mark.parametrize("is_same", [True, False])
def test_trials_on_one_card_never_overlap_whatever_its_number(is_same, tmp_path):
    spans = []
    together = threading.Barrier(2)

    def trial():
        start = time.monotonic()
        if not is_same:
            together.wait(timeout=30)
        time.sleep(0.01)
        spans.append((start, time.monotonic()))

    uuids = [token_hex(8)] * 2 if is_same else [token_hex(8), token_hex(8)]
    runners = [on_card_locks(number, uuid, trial) for number, uuid in enumerate(uuids)]
    threads = [threading.Thread(target=run.run, args=(TIMED, tmp_path)) for run in runners * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spans) == 4
    spans.sort()
    if is_same:
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@covers("S9")
def test_searches_that_count_the_same_gpus_in_another_order_do_not_wait_for_ever(tmp_path):
    cards, spans = (token_hex(8), token_hex(8)), list[tuple[float, float]]()

    def trial():
        start = time.monotonic()
        time.sleep(0.01)
        spans.append((start, time.monotonic()))

    runners = [on_card_locks(0, order[0], trial, order) for order in (cards, cards[::-1])]
    threads = [threading.Thread(target=run.run, args=(TIMED, tmp_path)) for run in runners * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    spans.sort()
    assert len(spans) == 8
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cuda:0,cuda:0", "two trials at once"),
        *(("cuda:0,cpu:0", "several kinds"), ("cpu:0,cpu:4000", "may not use")),
        *(("cpu:x", "not a device"), ("", "not a device"), ("cuda:one", "not a device")),
        ("xpu:0,xpu:1", "not a device"),
        ("cpu:0-99999999999", "cores that this process may not use"),
    ],
)
def test_devices_that_make_no_sense_are_refused(text, fault):
    with pytest.raises(UsageError, match=fault):
        devices_of(text)


def test_a_search_on_one_named_device_waits_until_it_is_free(tmp_path, monkeypatch):
    scripted, stop = ScriptedRunner(), Stop()
    monkeypatch.setattr(execute, "SubprocessRunner", lambda *_, **__: nullcontext(scripted))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"3,GPU-{token_hex(4)}")
    options = options_in(tmp_path, device="cuda:1")
    with (
        execute.search_runners(options, (), stop, tmp_path) as (runner, _),
        device_locks(Device("cuda:1").locks(), refuse),
    ):
        timer = threading.Timer(0.05, stop.request_at_once)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            runner.run(TIMED, tmp_path)
        timer.join()
    assert scripted.asked == []
