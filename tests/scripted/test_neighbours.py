"""Other processes on a GPU are named before anything is measured, as NVML tells."""

import os
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from autotune.process import devices as asked
from autotune.process.devices import Device, neighbours
from autotune.searching.run.events import PhaseStarted, Warned
from autotune.searching.search import search
from autotune.values.errors import UsageError
from autotune.values.outcome import Inspected
from covering import covers
from factories import GIB, cuda_machine
from scripted_runner import FACTS, ScriptedRunner, events_of, unstored_in

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
