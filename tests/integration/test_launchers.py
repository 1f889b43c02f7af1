"""Trials whose processes a launcher of the user's starts: torchrun, accelerate, a stand-in."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from asked_scripts import LONG, SCRIPTS
from autotune.configuration.best_config import read_best
from autotune.configuration.job import Inspect, Job, Measure, Observe
from autotune.configuration.script import Script
from autotune.processes.runner import SubprocessRunner
from autotune.values.outcome import (
    Inspected,
    Measured,
    NotApplied,
    Observed,
    Rejected,
    TrialOutcome,
)
from children import QUICK, WORKLOADS, autotune, hurried, job_for, nobody_is_left
from factories import written
from needs import installed

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
TORCHRUN = f"{PROGRAMS / 'torchrun'} --standalone --nproc-per-node 2"
ACCELERATE = (
    f"{PROGRAMS / 'accelerate'} launch --multi_gpu --num_processes 2 --num_machines 1 "
    "--mixed_precision no --dynamo_backend no"
)
# Starts its ranks in the words of MPI, as programs, and waits for both.
MPI = """#!/bin/bash
for rank in 0 1; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$rank \\
        MASTER_ADDR=127.0.0.1 MASTER_PORT={port} "$@" &
done
wait -n || exit 1
wait -n
"""


@pytest.fixture
def outcome_of(tmp_path: Path):
    def run(job: Job, launch: str, processes: int = 2) -> TrialOutcome:
        words = tuple(shlex.split(launch))
        with SubprocessRunner(tmp_path / "inductor") as runner:
            outcome = runner.run(
                replace(job, processes=processes, launch=words), tmp_path / "trial"
            )
        assert nobody_is_left(tmp_path)
        assert (tmp_path / "trial" / "launch").read_text() == f"started by {shlex.join(words)}\n"
        return outcome

    return run


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def mpi(tmp_path: Path) -> str:
    path = written(tmp_path, MPI.format(port=free_port()), "mpi")
    path.chmod(0o755)
    return str(path)


def test_a_launcher_tells_how_many_processes_it_starts(outcome_of) -> None:
    job = replace(job_for(WORKLOADS / "plain.py", task=Inspect()), config=None)
    outcome = outcome_of(job, TORCHRUN, processes=0)
    assert isinstance(outcome, Inspected), outcome
    assert (outcome.processes, outcome.on_host) == (2, 2)


def test_a_model_is_timed_in_the_words_of_mpi(outcome_of, mpi: str, tmp_path: Path) -> None:
    outcome = outcome_of(job_for(WORKLOADS / "plain.py"), mpi)
    assert isinstance(outcome, Measured), outcome
    assert len(outcome.measurement.ranks) == 2
    assert {block.samples % 16 for block in outcome.measurement.blocks} == {0}
    assert (tmp_path / "trial" / "stderr.rank1.log").exists()


def test_a_launcher_without_a_place_to_meet_is_refused_with_what_to_do(
    outcome_of, tmp_path: Path
) -> None:
    lines = [line for line in MPI.splitlines() if "MASTER" not in line]
    path = written(tmp_path, "\n".join(lines).replace("\\\n", '"$@" &\n'), "mpi")
    path.chmod(0o755)
    outcome = outcome_of(job_for(WORKLOADS / "plain.py"), str(path))
    assert isinstance(outcome, Rejected), outcome
    assert "the launcher gives no MASTER_ADDR and MASTER_PORT" in outcome.detail


def test_a_model_is_timed_by_torchrun_on_several_hosts(
    outcome_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in of ssh runs the words of both hosts here."""
    programs = tmp_path / "bin"
    programs.mkdir()
    written(programs, '#!/bin/bash\nexec bash -c "${!#}"\n', "ssh").chmod(0o755)
    hosts = {"HOSTS": "127.0.0.1 127.0.0.1", "NPROC": "1", "PORT": str(free_port())}
    hosts |= {"TORCHRUN": str(PROGRAMS / "torchrun"), "PATH": f"{programs}:{os.environ['PATH']}"}
    for name, value in hosts.items():
        monkeypatch.setenv(name, value)
    launcher = ROOT / "examples" / "cluster" / "torchrun_on_hosts.sh"
    outcome = outcome_of(job_for(WORKLOADS / "plain.py"), str(launcher))
    assert isinstance(outcome, Measured), outcome
    assert len(outcome.measurement.ranks) == 2


@pytest.mark.slow
def test_a_model_is_timed_under_accelerate_launch(outcome_of) -> None:
    installed("accelerate")
    outcome = outcome_of(job_for(WORKLOADS / "plain.py"), ACCELERATE)
    assert isinstance(outcome, Measured), outcome


def test_a_script_is_observed_and_timed_under_torchrun(outcome_of) -> None:
    observing = Job(
        Observe(), "auto", str(SCRIPTS / "ddp_loop.py"), script=Script(LONG), deadline_seconds=120.0
    )
    seen = outcome_of(observing, TORCHRUN, processes=0)
    assert isinstance(seen, Observed), seen
    assert (seen.processes, seen.on_host) == (2, 2)
    config = {**seen.workload.baseline, "num_workers": 1}
    timing = replace(observing, task=Measure(QUICK), device="cpu", config=config)
    timing = replace(timing, script=Script(LONG, ("num_workers", "prefetch_factor")))
    outcome = outcome_of(timing, TORCHRUN)
    assert isinstance(outcome, Measured | NotApplied), outcome
    assert isinstance(outcome, Measured), outcome


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_under_a_launcher_reaches_an_answer_and_goes_on(tmp_path: Path) -> None:
    shutil.copy(WORKLOADS / "plain.py", tmp_path / "plain.py")
    written(tmp_path, "batch_size: [8, 32]\n")
    flags = ("--space", "space.yaml", "--trials", "2", "--accuracy-samples", "256", "--study", "s")
    done = hurried(tmp_path, "search", "plain.py", "--launch", TORCHRUN, *flags)
    assert done.returncode == 0, done.stderr
    assert f"2 processes in each trial, started by {TORCHRUN}" in done.stderr
    assert read_best(tmp_path / "studies" / "s" / "best.yaml").processes == 2
    assert nobody_is_left(tmp_path)
    again = hurried(tmp_path, "search", "plain.py", "--launch", TORCHRUN, *flags)
    assert again.returncode == 0, again.stderr
    other = hurried(tmp_path, "search", "plain.py", *flags)
    assert "processes: 2 in the study" in other.stderr


@pytest.mark.slow
def test_a_comparison_under_a_launcher_takes_as_many_as_the_file_says(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    shutil.copy(SCRIPTS / "ddp_loop.py", script)
    written(tmp_path, "num_workers: [0, 1]\n")
    flags = ("--space", "space.yaml", "--trials", "1", "--only", "exact", "--study", "s")
    two = ("--nproc-per-node", "2")
    done = hurried(tmp_path, "search", "train.py", *two, *flags, "--", *LONG)
    assert done.returncode == 0, done.stderr
    best = tmp_path / "studies" / "s" / "best.yaml"
    three = TORCHRUN.replace("per-node 2", "per-node 3")
    refused = autotune(tmp_path, "compare", "train.py", best, "--launch", three, "--", *LONG)
    assert refused.returncode == 2
    assert "the launcher starts 3 processes, and started 2 before" in refused.stderr
