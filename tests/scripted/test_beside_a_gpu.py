"""A search on GPUs shares its host's memory and cores, and has processes that cannot be ended."""

import os
import signal
import subprocess
import sys
import time

import pytest

from autotune.configuration.job import Inspect, Job, Measure
from autotune.process import warm_hosts
from autotune.process.children import Family, FreshInterpreter, Patience, RunningChild
from autotune.process.common.trial_folder import TrialFolder, make_private
from autotune.process.devices import Device, devices_of, shared_cores
from autotune.process.runner import SubprocessRunner
from autotune.values.errors import TooManyLostError
from autotune.values.outcome import Inspected, OutOfMemory
from children import WORKLOADS, job_for
from covering import covers
from factories import GIB, cpu_machine, cuda_machine
from scripted_runner import FACTS, ScriptedRunner, events_of, unstored_in

HOG = "held = bytearray(400 << 20); import sys; print(flush=True); sys.stdin.read()"
SOON = Patience(grace=0.1, tidy=0.1, strays=0.1, killed=0.5)


class Stuck:
    """A child that its parent cannot see end, as one that waits for a driver."""

    host_pid: int | None = None
    exit_code: int | None = None

    def __init__(self, process):
        self.pid = process.pid
        self.waits: list[float] = []

    def ended_within(self, seconds):
        self.waits.append(seconds)
        return False


@pytest.fixture
def hog():
    """A process of its own group, with 400 MiB."""
    words = [sys.executable, "-c", HOG]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.fixture
def files(tmp_path):
    folder = TrialFolder(tmp_path / "trial")
    make_private(folder.path)
    for log in (folder.stdout, folder.stderr):
        log.write_bytes(b"")
    return folder


def test_a_child_that_outlives_sigkill_is_waited_for_a_while_and_named(hog, files):
    files.job.touch()  # as a runner writes it before
    child = Stuck(hog)
    with pytest.raises(TooManyLostError, match=f"process {hog.pid} cannot be ended: 0.5 s after"):
        RunningChild(child, files).end(Family(), frozenset(), SOON)
    assert child.waits == [0, 0.1, 0.5]
    assert hog.wait(10) < 0, "it was told to end all the same"


@covers("T22")
def test_a_search_ends_with_what_is_finished_where_a_child_cannot_be_ended(tmp_path, monkeypatch):
    """Nothing more is started on its device."""
    monkeypatch.setattr("autotune.process.children.PATIENT", SOON)

    def never(child, seconds):
        time.sleep(min(seconds, 0.5))
        child._process.poll()  # reaps it
        return False

    monkeypatch.setattr(FreshInterpreter, "ended_within", never)
    job = job_for(WORKLOADS / "hangs.py", deadline_seconds=1.0, host=None)
    with (
        SubprocessRunner(tmp_path / "inductor", warm=False) as runner,
        pytest.raises(TooManyLostError, match="Finished trials are kept"),
    ):
        runner.run(job, tmp_path / "trial")


@pytest.mark.fresh
@covers("T22")
def test_a_host_that_outlives_sigkill_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    """It may be stuck as well, since it builds datasets."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 20\n")
    python.chmod(0o755)
    monkeypatch.setattr(warm_hosts, "_KILLED_SECONDS", 0.2)
    monkeypatch.setattr(warm_hosts.sys, "executable", str(python))
    host = warm_hosts.WarmHost({})
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "kill", lambda _: None)
        host.close()
    assert not host.has_ended
    os.kill(host.pid, signal.SIGKILL)
    while not host.has_ended:
        time.sleep(0.01)


@pytest.mark.parametrize(("limit", "ends"), [(300 << 20, True), (None, False)])
def test_a_trial_on_a_gpu_is_held_to_the_memory_of_its_host(limit, ends, hog, files):
    """Workers that load greedily would else be met by the kernel alone."""
    job = Job(Inspect(), "cuda:0", deadline_seconds=0.0, host_limit_bytes=limit)
    outcome = RunningChild(Stuck(hog), files).watch(job, lambda: False)
    assert isinstance(outcome, OutOfMemory) is ends
    assert not ends or outcome.memory == "host"


@pytest.mark.parametrize(("at_once", "limit"), [(1, 0.92 * 8 * GIB), (2, 0.92 * 4 * GIB)])
def test_trials_on_gpus_share_the_memory_of_the_host(at_once, limit, tmp_path):
    runner = ScriptedRunner(inspected=Inspected(cuda_machine(), FACTS))
    events_of(unstored_in(tmp_path, trials=2, at_once=at_once), runner)
    told = {job.host_limit_bytes for job in runner.jobs if isinstance(job.task, Measure)}
    assert told == {int(limit)}


def test_a_trial_on_a_cpu_has_one_limit(tmp_path):
    runner = ScriptedRunner(inspected=Inspected(cpu_machine(), FACTS))
    events_of(unstored_in(tmp_path, trials=2), runner)
    assert {job.host_limit_bytes for job in runner.jobs} == {None}


def test_gpus_that_are_searched_together_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(2, 12)))
    shared = shared_cores(devices_of("cuda:0,cuda:1,cuda:2"))
    assert list(shared.values()) == [(2, 3, 4), (5, 6, 7), (8, 9, 10)]
    assert shared_cores([Device("cuda:0")]) == {Device("cuda:0"): ()}
    assert list(shared_cores(devices_of("cpu:2-5,cpu:6-9")).values()) == [
        (2, 3, 4, 5),
        (6, 7, 8, 9),
    ]
    many = [Device(f"cuda:{number}") for number in range(11)]
    assert set(shared_cores(many).values()) == {()}, "there are fewer cores than GPUs"
