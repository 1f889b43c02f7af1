"""Children are watched, limited and killed as a whole, however they and their parent behave."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from autotune.commands.execute import one_runner
from autotune.configuration.job import Measure, MeasurePlan, job_from_json, job_to_json
from autotune.context.inspection import inspection
from autotune.process.children import HURRIED, RunningChild
from autotune.process.common.child_ties import this_host
from autotune.process.devices import Device
from autotune.process.runner import SubprocessRunner
from autotune.process.stop import Stop, interrupts
from autotune.values import outcome as outcomes
from children import (
    WORKLOADS,
    children_of,
    ended_as,
    job_for,
    measured,
    nobody_is_left,
    run_child,
    shared_job,
    start_parent,
    wait_until,
)
from covering import covers
from factories import written
from tiers import late

MIB = 1 << 20
# Enough for a fork on a busy machine; what hangs is waited for as long.
DEADLINE_SECONDS = 5.0


@pytest.fixture(params=[late("fresh"), "forked"])
def launch(request):
    return request.param


@pytest.fixture
def run(launch, tmp_path):
    return lambda job: run_child(tmp_path, job, warm=launch == "forked")


@pytest.mark.parametrize("launch", ["fresh", "forked"])
def test_the_folder_holds_the_job_the_outcome_and_both_logs(run, tmp_path):
    job = shared_job(WORKLOADS / "plain.py", settings={"num_workers": 2})
    outcome = run(job)
    assert nobody_is_left(tmp_path)

    trial = tmp_path / "trial"
    assert isinstance(outcome, outcomes.Measured)
    assert outcomes.outcome_from_json((trial / "outcome.json").read_text()) == outcome
    assert job_from_json((trial / "job.json").read_text()) == job
    assert {"stdout.log", "stderr.log"} <= {file.name for file in trial.iterdir()}
    assert not list(trial.glob(".*")), "a half-written file was left"


@pytest.mark.parametrize(("launch", "error"), [("fresh", errno.EAGAIN), ("forked", errno.EMFILE)])
def test_a_machine_that_can_start_no_process_loses_the_job(monkeypatch, tmp_path, launch, error):
    def refuse(*arguments, **options):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(psutil, "Popen", refuse)
    open_before = psutil.Process().num_fds()
    outcome = run_child(tmp_path, shared_job(WORKLOADS / "plain.py"), warm=launch == "forked")
    assert outcome == outcomes.Lost(f"no process could be started: {os.strerror(error)}")
    assert psutil.Process().num_fds() == open_before


@covers("T20")
def test_a_child_has_a_session_of_its_own_and_nothing_to_read(run, tmp_path):
    source = (
        "import json, os, sys\n"
        "raise ValueError(json.dumps([os.getsid(0), os.getpid(), os.readlink('/proc/self/fd/0')]))"
    )
    outcome = ended_as(outcomes.UserError, run(shared_job(written(tmp_path, source, "model.py"))))
    search, process, stdin = json.loads(outcome.detail.removeprefix("ValueError: "))
    assert search == process != os.getsid(0)
    assert stdin == "/dev/null"


@covers("U10")
def test_processes_of_the_users_code_end_with_the_child(run, tmp_path):
    measured(run(shared_job(WORKLOADS / "leaves_children.py")))
    assert nobody_is_left(tmp_path)


@covers("T5")
def test_a_child_that_hangs_is_ended_and_says_where_it_was(run, tmp_path):
    job = shared_job(WORKLOADS / "hangs.py", deadline_seconds=DEADLINE_SECONDS)
    outcome = run(job)
    assert outcome == outcomes.TimedOut("build", DEADLINE_SECONDS)
    assert nobody_is_left(tmp_path)
    assert "hangs.py" in (tmp_path / "trial" / "stderr.log").read_text()


@pytest.mark.skipif(os.cpu_count() == 1, reason="torch.compile starts helpers for several cores")
def test_helpers_of_the_compiler_end_with_a_child_that_hangs(tmp_path):
    job = shared_job(WORKLOADS / "compile_helpers.py", deadline_seconds=12.0)
    outcome = run_child(tmp_path, job)
    assert outcome == outcomes.TimedOut("build", 12.0)
    assert "0 helpers" not in (tmp_path / "trial" / "stdout.log").read_text()
    assert "helpers" in (tmp_path / "trial" / "stdout.log").read_text()
    assert nobody_is_left(tmp_path)


@covers("T6", "T7")
def test_hanging_workers_are_ended_though_none_obeys_sigterm(run, tmp_path):
    job = shared_job(
        WORKLOADS / "stubborn.py",
        settings={"num_workers": 2},
        deadline_seconds=DEADLINE_SECONDS,
    )
    outcome = run(job)
    assert outcome == outcomes.TimedOut("warm-up", DEADLINE_SECONDS)
    assert "a worker hangs" in (tmp_path / "trial" / "stdout.log").read_text()
    assert nobody_is_left(tmp_path)


@covers("R2")
def test_ctrl_c_twice_gives_children_less_than_five_seconds(tmp_path, monkeypatch):
    log, stop, given = tmp_path / "trial" / "stdout.log", Stop(), []
    end = RunningChild.end

    def noting(child, family, hosts, patience):
        given.append(patience)
        end(child, family, hosts, patience)

    def press():
        for holds in (lambda: log.exists() and "hangs" in log.read_text(), stop.is_requested):
            if wait_until(holds, seconds=60):
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RunningChild, "end", noting)
    job = shared_job(WORKLOADS / "stubborn.py", settings={"num_workers": 2})
    person = threading.Thread(target=press)
    person.start()
    with one_runner(tmp_path, warm=False, stop=stop) as runner:
        with pytest.raises(KeyboardInterrupt), interrupts(stop):
            runner.run(job, tmp_path / "trial")
        person.join()
    assert given == [HURRIED]
    assert sum(HURRIED) < 5
    assert nobody_is_left(tmp_path)


def test_a_child_that_passes_the_memory_limit_is_ended_while_it_runs(run, tmp_path):
    job = shared_job(
        WORKLOADS / "host_hog.py",
        settings={"batch_size": 64},
        memory_limit_bytes=900 * MIB,
    )
    outcome = ended_as(outcomes.OutOfMemory, run(job))
    assert outcome.memory == "host"
    assert str(900 * MIB) in outcome.detail
    assert 900 * MIB < outcome.peak_bytes < 4096 * MIB
    assert nobody_is_left(tmp_path)


@pytest.mark.parametrize("launch", ["forked"])
def test_memory_below_the_limit_is_measured_workers_included(run):
    job = shared_job(
        WORKLOADS / "host_hog.py",
        settings={"batch_size": 64},
        memory_limit_bytes=8192 * MIB,
    )
    assert 1024 * MIB < measured(run(job)).peak_memory_bytes < 4096 * MIB


def test_no_child_outlives_a_parent_that_is_killed(launch, tmp_path):
    job = shared_job(WORKLOADS / "stubborn.py", settings={"num_workers": 2})
    with start_parent(tmp_path, job, launch == "forked") as parent:
        log = tmp_path / "trial" / "stdout.log"
        hangs = wait_until(lambda: log.exists() and "hangs" in log.read_text(), seconds=60)
        family = len(children_of(tmp_path))
        parent.kill()
    assert hangs
    assert family == 3 + (launch == "forked"), "the child and its two workers, and the host"
    assert nobody_is_left(tmp_path)


def test_a_parent_that_is_killed_at_once_leaves_no_child(launch, tmp_path):
    job = shared_job(WORKLOADS / "hangs.py")
    with start_parent(tmp_path, job, launch == "forked") as parent:
        started = wait_until(lambda: bool(children_of(tmp_path)), seconds=60)
        parent.kill()
    assert started
    assert nobody_is_left(tmp_path)


def test_a_child_whose_parent_died_before_it_looked_ends_at_once(tmp_path):
    written(tmp_path, job_to_json(shared_job(WORKLOADS / "hangs.py")), "job.json")
    lifeline, other_end = os.pipe()
    os.close(other_end)
    place = f"{this_host()}:/proc/{os.getpid()}/fd/{lifeline}"
    command = [sys.executable, "-m", "autotune.process.child.main", tmp_path, place, "0.0"]
    with subprocess.Popen(command, start_new_session=True) as child:
        ended = wait_until(lambda: child.poll() is not None, seconds=10)
        child.kill()

    os.close(lifeline)
    assert ended
    assert child.returncode == -signal.SIGKILL


@pytest.mark.fresh
@pytest.mark.usefixtures("threads_of_the_machine")
def test_a_child_uses_no_other_cores_than_those_of_its_device(launch, tmp_path):
    before = len(os.sched_getaffinity(0))
    core = max(os.sched_getaffinity(0))
    device = Device(f"cpu:{core}", (core,))
    with SubprocessRunner(tmp_path / "inductor", launch == "forked", device.environ) as runner:
        found = runner.run(inspection("cpu", None), tmp_path / "trial")
    assert isinstance(found, outcomes.Inspected)
    assert found.machine.host.affinity_count == 1
    assert found.machine.default_num_threads == 1
    assert len(os.sched_getaffinity(0)) == before, "this process keeps its own"


def test_memory_that_workers_only_read_is_not_counted_for_each(tmp_path):
    # Long enough for the runner to look, which it does once a second.
    plan, peaks = MeasurePlan(warmup_steps=1, block_seconds=0.3, block_counts=(6,)), []
    for workers in (0, 2):
        job = job_for(WORKLOADS / "shared_memory.py", {"num_workers": workers}, Measure(plan))
        peaks.append(measured(run_child(tmp_path / str(workers), job)).peak_memory_bytes)
    assert peaks[0] > 256 * MIB
    assert peaks[1] - peaks[0] < 256 * MIB, "resident sizes would add up to twice that more"
