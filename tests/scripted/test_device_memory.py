"""Memory of an accelerator and its host: limits, parts in the answer, retries, what cannot end."""

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
from autotune.configuration.job import Inspect, Job, Measure
from autotune.console.lines import answer_lines
from autotune.process import runner as running
from autotune.process.children import Family, FreshInterpreter, Patience, RunningChild
from autotune.process.common.trial_folder import TrialFolder, make_private
from autotune.process.devices import Device, devices_of, shared_cores
from autotune.process.runner import SubprocessRunner
from autotune.report.data import read_report
from autotune.searching.run.events import Answered
from autotune.study.archive import StudyPlace
from autotune.training import memory
from autotune.values.errors import TooManyLostError
from autotune.values.measurement import DeviceMemory, Noise
from autotune.values.outcome import Inspected, Measured, OutOfMemory
from children import WORKLOADS, job_for, printed
from covering import covers
from factories import GIB, TINY_CONV, cpu_machine, cuda_machine, measurement
from scripted_runner import FACTS, ScriptedRunner, batch_of, events_of, options_in, unstored_in

MEASURES = """
import sys
from pathlib import Path
from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.process.common.trial_folder import TrialFolder
from autotune.training import memory, tasks

memory.allocator_retries = lambda _: 3
plan = MeasurePlan(warmup_steps=1, block_seconds=0.01, block_counts=(3,), max_seconds=1)
config = TrainingConfig.of({"batch_size": 8, "num_threads": 1}).as_dict()
loaded = tasks.prepare(Job(Measure(plan), "cpu", sys.argv[1], config), TrialFolder(Path(".")), 0.0)
print(tasks.measure(loaded, plan).measurement.allocator_retries)
"""
LIMITS = """
import sys
from pathlib import Path
from autotune.configuration.job import Job, Observe
from autotune.configuration.script import Script
from autotune.configuration.training_config import TrainingConfig
from autotune.scripting.run import Calls
from autotune.scripting.trial import Trial
from autotune.process.common.trial_folder import TrialFolder
from autotune.training import memory
import torch
from torch.utils.data import DataLoader

memory.limit_device_memory = lambda device, limit: print(device, limit)
config = TrainingConfig.of({}).as_dict()
job = Job(Observe(), "cpu", "train.py", config, memory_limit_bytes=1000, script=Script(()))
folder = TrialFolder(Path("."))
Trial(job, folder, lambda outcome: sys.exit(str(outcome)), Calls({})).begin(0.0)
print("begun")
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in DataLoader(torch.zeros(6, 2), batch_size=2):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
print("ended")
"""
GPU = torch.device("cuda:0")
HELD = DeviceMemory(80 * GIB, 67 * GIB, reserved=12 * GIB, allocated=9 * GIB, context=GIB)


def on_a_gpu(config, phase):
    """Larger batches are faster, and leave less memory free."""
    batch = batch_of(config)
    left = replace(HELD, free=HELD.free - batch * GIB // 128)
    return Measured(replace(measurement(batch), device_memory=left))


def test_the_answer_names_the_parts_of_the_memory(tmp_path):
    inspected = Inspected(cuda_machine(), FACTS)
    events = events_of(unstored_in(tmp_path), ScriptedRunner(on_a_gpu, inspected=inspected))
    (answered,) = (event for event in events if isinstance(event, Answered))
    written = yaml.safe_load((tmp_path / "best.yaml").read_text())["constraints"]["memory"]
    assert written["device"] == {
        "total": 80 * GIB,
        "free": 66 * GIB,
        "reserved": 12 * GIB,
        "allocated": 9 * GIB,
        "context": GIB,
    }
    said = next(line for line in answer_lines(answered) if "memory" in line)
    assert "tensors 9 GiB, outside the allocator 1 GiB, free 66 GiB" in said
    assert read_best(tmp_path / "best.yaml").constraints.memory.device is not None


@pytest.fixture
def allocator(monkeypatch):
    """The numbers that the allocator of a GPU tells."""
    numbers = {"num_alloc_retries": 0, "free": 50, "total": 80, "held": 20}

    def told(_):
        return numbers["free"], numbers["total"]

    gpu = torch.accelerator
    monkeypatch.setattr(gpu, "memory_stats", lambda _: numbers)
    monkeypatch.setattr(gpu, "get_memory_info", told)
    monkeypatch.setattr(gpu, "memory_reserved", lambda _: numbers["held"])
    monkeypatch.setattr(gpu, "max_memory_reserved", lambda _: 25)
    monkeypatch.setattr(gpu, "max_memory_allocated", lambda _: 15)
    return numbers


@pytest.mark.usefixtures("allocator")
def test_memory_that_is_neither_free_nor_the_allocators_is_the_context():
    assert memory.device_memory(GPU) == DeviceMemory(80, 50, reserved=25, allocated=15, context=10)


def test_the_allocator_of_a_gpu_fails_beyond_the_limit(monkeypatch):
    told = []
    card = SimpleNamespace(total_memory=4 * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, _: told.append(share)
    )
    memory.limit_device_memory(GPU, GIB)
    memory.limit_device_memory(GPU, None)
    memory.limit_device_memory(torch.device("cpu"), GIB)
    assert told == [0.25]


def test_retries_of_the_warm_up_do_not_count(allocator):
    peak = memory.PeakWatch(GPU)
    allocator["num_alloc_retries"] = 3
    peak.begin_blocks()
    assert peak.retries == 0
    allocator["num_alloc_retries"] = 5
    assert peak.retries == 2


def test_a_trial_counts_retries_of_its_blocks_alone(tmp_path):
    assert printed(tmp_path, MEASURES, str(TINY_CONV)) == ["0"]


def test_a_script_gets_the_allocators_limit_once_its_device_is_known(tmp_path):
    """Not before: asking a GPU earlier would take from the script the choice of devices."""
    assert printed(tmp_path, LIMITS) == ["begun", "cpu 1000", "ended"]


def test_the_answer_says_what_held_the_clock_of_the_gpu_back(tmp_path):
    """Each process has its last block hot, and those of larger batches run at the power limit."""

    def held_back(config, phase):
        run = measurement(batch_of(config))
        capped = Noise(power_capped=batch_of(config) > 8)
        last = replace(capped, gpu="thermal" if phase == "confirmation" else "")
        noises = [*(capped for _ in run.blocks[1:]), last]
        blocks = tuple(replace(b, noise=n) for b, n in zip(run.blocks, noises, strict=True))
        return Measured(replace(run, blocks=blocks))

    options = options_in(tmp_path)
    inspected = Inspected(cuda_machine(), FACTS)
    answered = events_of(options, ScriptedRunner(held_back, inspected=inspected))[-1]
    blocks = yaml.safe_load((tmp_path / "best.yaml").read_text())["evidence"]["blocks"]
    assert blocks["gpu_held_back"]["power limit"] == blocks["timed"] / 2
    said = f"the GPU's clock was throttled in timed blocks (power limit in {blocks['timed'] // 2}"
    assert said in answered.remark
    report = read_report(StudyPlace(str(options.study.storage), None))
    assert said in " ".join(report.remarks)


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
    monkeypatch.setattr(running, "_KILLED_SECONDS", 0.2)
    monkeypatch.setattr(running.sys, "executable", str(python))
    host = running.WarmHost({})
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
