"""Two processes of which rank 1 goes wrong, in each way in which the processes of a trial start."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

from asked_scripts import Ask, InTwo
from autotune.configuration.job import Job, Measure
from autotune.processes.runner import SubprocessRunner
from autotune.values.outcome import TrialOutcome
from children import QUICK, WORKLOADS, job_for, nobody_is_left
from factories import written

DEADLINE, OF_LAUNCHER, PATIENCE = 12.0, 30.0, 300.0
"""Seconds until a trial is ended: one that hangs, one of new interpreters that does, any other."""
FAULTS = {"killed": 16, "hangs": 17, "raises": 18, "stopped": 19, "stubborn": 20, "diverges": 21}
"""Batch size with which rank 1 of the workload goes wrong so; a script is told by an argument."""
# Each stand-in starts two ranks in torch's words; like srun, it leaves the others if one fails.
START = """
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT={port} "$@" &
done
"""
LEAVES_OTHERS = "#!/bin/bash\n" + START + "wait\n"
MODEL, SCRIPT = "a model.py by torch's launcher", "a script that is forked"
LAUNCHED, OWN = "a script by torch's launcher", "a model.py by the user's launcher"


def outcome_of(way: str, fault: str, folder: Path, seconds: float = PATIENCE) -> TrialOutcome:
    """The outcome of two processes that were started in a way; nothing of them is left."""
    with SubprocessRunner(folder / "inductor", warm=way != LAUNCHED) as runner:
        if way in (MODEL, OWN):
            job = replace(job_of(way, fault, folder), deadline_seconds=seconds)
            outcome = runner.run(job, folder / "trial")
        else:
            ask = Ask(InTwo(runner, seconds), folder / "trial")
            outcome = ask("faulty_rank.py", fault, task=Measure(QUICK), settings={})
    assert nobody_is_left(folder)
    return outcome


def job_of(way: str, fault: str, folder: Path) -> Job:
    """The job of a model.py, of two processes."""
    if way == OWN:
        job = launching(folder, LEAVES_OTHERS, fault)
    else:
        job = replace(_job(fault), processes=2)
    return replace(job, deadline_seconds=PATIENCE)


def launching(folder: Path, launcher: str, fault: str = "hangs") -> Job:
    """The same, whose processes a shell script starts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = written(folder, launcher.replace("{port}", str(port)), "launcher")
    path.chmod(0o755)
    return replace(_job(fault), processes=2, host=None, launch=(str(path),))


def _job(fault: str) -> Job:
    settings = {"batch_size": FAULTS[fault]}
    return job_for(WORKLOADS / "ranks.py", settings, deadline_seconds=OF_LAUNCHER)
