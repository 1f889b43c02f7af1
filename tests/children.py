"""Real child processes for tests: jobs, the command line, and who is left of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil

from autotune.configuration.job import Job, Measure, MeasurePlan, Task, job_to_json
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.process.runner import SubprocessRunner
from autotune.values.measurement import Measurement
from autotune.values.outcome import Measured, TrialOutcome, describe
from factories import written

WORKLOADS = Path(__file__).parent / "workloads"
HURRIED = Path(__file__).parent / "hurried_command.py"
# Seconds. Above what a search without `--time-budget` takes where others disturb it.
DEADLINE = 600
QUICK = MeasurePlan(warmup_steps=1, block_seconds=0.02, block_counts=(6,), max_seconds=1.0)
SETTINGS: dict[str, Value] = {"batch_size": 8, "num_threads": 1}
Kind = TypeVar("Kind")
PARENT = """
import sys
from pathlib import Path
from autotune.configuration.job import job_from_json
from autotune.process.runner import SubprocessRunner

folder = Path(sys.argv[1])
job = job_from_json((folder / "wanted.json").read_text())
SubprocessRunner(folder / "inductor", warm=bool(sys.argv[2])).run(job, folder / "trial")
"""


def job_for(
    model: Path,
    settings: dict[str, Value] | None = None,
    task: Task | None = None,
    deadline_seconds: float = 120.0,
    memory_limit_bytes: int | None = None,
    host: str | None = "search",
) -> Job:
    """A short job on the CPU; settings over one thread and batches of eight.

    Its process builds the dataset, so that jobs of several workloads are forked from one host.
    """
    return Job(
        task=task or Measure(QUICK),
        device="cpu",
        model_path=str(model),
        config=TrainingConfig.of({**SETTINGS, **(settings or {})}).as_dict(),
        deadline_seconds=deadline_seconds,
        memory_limit_bytes=memory_limit_bytes,
        host=host,
        fresh_data=True,
    )


def shared_job(model: Path, *arguments: Any, **options: Any) -> Job:
    """The same, with the dataset that its host builds, as in a search."""
    return replace(job_for(model, *arguments, **options), fresh_data=False)


def model_of(folder: Path, lines: str) -> Path:
    """A model.py that is `plain.py` but for these lines; it may import other workloads, too."""
    names = "BASELINE, build_dataset, build_model, build_optimizer, compute_loss, evaluate"
    begin = f"import sys\nsys.path.insert(0, {str(WORKLOADS)!r})\nimport plain\n"
    return written(folder, f"{begin}from plain import {names}\n{lines}\n", "model.py")


def run_child(folder: Path, job: Job, warm: bool = False) -> TrialOutcome:
    """The outcome of a job in a process of its own."""
    with SubprocessRunner(folder / "inductor", warm) as runner:
        return runner.run(job, folder / "trial")


def ended_as(kind: type[Kind], outcome: TrialOutcome) -> Kind:
    """The outcome of a trial that has to end in this way."""
    assert isinstance(outcome, kind), describe(outcome)
    return outcome


def measured(outcome: TrialOutcome) -> Measurement:
    """What a trial measured that has to end well."""
    return ended_as(Measured, outcome).measurement


def start_parent(folder: Path, job: Job, warm: bool = False) -> subprocess.Popen[bytes]:
    """A process that runs a job as a search does, for a test that kills it."""
    (folder / "wanted.json").write_text(job_to_json(job))
    return subprocess.Popen([sys.executable, "-c", PARENT, folder, "forked" * warm])


def autotune(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A finished `autotune` command that was given in `folder`."""
    return completed(folder, _command(arguments))


def hurried(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The same with its budgets cut short, see `hurried_command`."""
    return completed(folder, _hurried_command(arguments))


def completed(
    folder: Path, command: Sequence[str | Path], stdin: str | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    """A command that ran in `folder` to its end, with these variables beside our own."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def succeeded(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """The same, which has to have ended without an error."""
    assert done.returncode == 0, done.stderr
    return done


def printed(folder: Path, program: str, *words: str) -> list[str]:
    """Return the lines that a Python prints which runs in a folder of its own."""
    done = succeeded(completed(folder, [sys.executable, "-c", program, *words]))
    return done.stdout.splitlines()


def start_autotune(folder: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    """A running `autotune` command, with its stderr in `folder`/stderr.txt."""
    return _start(folder, _command(arguments))


def start_hurried(folder: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    """The same with its budgets cut short, see `hurried_command`."""
    return _start(folder, _hurried_command(arguments))


def _start(folder: Path, command: list[str]) -> subprocess.Popen[str]:
    with (folder / "stderr.txt").open("w") as stderr:
        return subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=stderr, text=True
        )


def stop(process: subprocess.Popen[str], number: signal.Signals) -> int:
    """The exit code of a process that is sent a signal."""
    process.send_signal(number)
    return process.wait(timeout=30)


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Return True if a condition came true within some seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def nobody_is_left(folder: Path) -> bool:
    """Return True if all children with files in `folder`, and all of theirs, end within 2 s."""
    return wait_until(lambda: not children_of(folder), seconds=2.0)


def only_its_host_is_left(folder: Path) -> bool:
    """Return True if all children but one, the warm host, end within 2 s."""
    return wait_until(lambda: len(children_of(folder)) <= 1, seconds=2.0)


def children_of(folder: Path) -> list[psutil.Process]:
    """Living processes that a runner started for `folder`, at any depth and in any session.

    They are known by their environment, which the runner sets and everything below it inherits.
    """
    return [process for process in psutil.process_iter() if _belongs_to(process, folder)]


def _belongs_to(process: psutil.Process, folder: Path) -> bool:
    try:
        cache = process.environ().get("TORCHINDUCTOR_CACHE_DIR", "")
    except psutil.Error:  # gone, or dead and not yet waited for
        return False
    return cache.startswith(str(folder))


def _command(arguments: tuple[str | Path, ...]) -> list[str]:
    return [sys.executable, "-m", "autotune", *map(str, arguments)]


def _hurried_command(arguments: tuple[str | Path, ...]) -> list[str]:
    return [sys.executable, str(HURRIED), *map(str, arguments)]
