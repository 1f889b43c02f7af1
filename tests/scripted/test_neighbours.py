"""One GPU, several programs: locks under whatever name, and the memory that is left."""

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

import pytest

from autotune.commands import execute
from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.context.inspection import inspection
from autotune.process.devices import Device, DeviceRunner, device_locks, devices_of
from autotune.process.stop import Stop
from autotune.searching.run.events import Warned
from autotune.searching.search import search
from autotune.values.errors import UsageError
from autotune.values.outcome import Inspected
from covering import covers
from factories import GIB, cuda_machine
from scripted_runner import FACTS, ScriptedRunner, events_of, options_in, unstored_in

UUID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"


@covers("T21")
@pytest.mark.parametrize(("free", "warns"), [(70 * GIB, True), (79 * GIB, False), (None, False)])
def test_a_search_with_less_memory_than_its_limit_says_so(free, warns, tmp_path):
    inspected = Inspected(cuda_machine(), FACTS, UUID, device_free_bytes=free)
    events = events_of(unstored_in(tmp_path, trials=2), ScriptedRunner(inspected=inspected))
    said = [event.warning for event in events if isinstance(event, Warned)]
    assert bool(said) is warns
    assert not warns or "70 GiB of its memory is free, and a trial may use 73.6 GiB" in said[0]


def on_card(number, uuid):
    machine = replace(cuda_machine(), device=f"cuda:{number}")
    return ScriptedRunner(inspected=Inspected(machine, FACTS, uuid))


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
