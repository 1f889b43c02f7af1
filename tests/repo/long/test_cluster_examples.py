"""The files in `examples/cluster`: parsed, their commands exist, the Slurm script resumes.

Here a stand-in has the place of `srun`: it runs each step on this host.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from autotune.cli import cli
from autotune.configuration.best_config import read_best
from autotune.values.errors import StorageError
from children import HURRIED, children_of, nobody_is_left, wait_until
from covering import covers
from held import LONG, place, told, trials_in

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "cluster"
WITH_WORKERS = [EXAMPLES / "search.sbatch", EXAMPLES / "worker.sbatch"]
TRIALS, TERMINATED = 5, 143
SRUN = '#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nexec "$@"\n'
SCONTROL = '#!/bin/bash\necho "$@" >> requeued\n'
AUTOTUNE = f'#!/bin/bash\nexec {sys.executable} {HURRIED} "$@"\n'


@pytest.fixture
def environ(tmp_path):
    """The environment of a Slurm job of two tasks, with the stand-ins."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("autotune", AUTOTUNE)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        "SLURM_JOB_ID": "7",
        "SLURM_NTASKS": "2",
        "AUTOTUNE_STORAGE": "postgresql://me@host/autotune",
    }


def submitted(folder, environ):
    """The script as Slurm starts it; both of its steps run in `folder`."""
    flags = ["--space", "space.yaml", "--trials", str(TRIALS), "--accuracy-samples", "256"]
    words = ["bash", EXAMPLES / "search.sbatch", "train/plain.py", *flags]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            words, cwd=folder, env=environ, stdout=log, stderr=log, start_new_session=True
        )


def end_all_steps(folder):
    """Send SIGTERM to every process of the steps, and not to the script, as Slurm does."""
    steps = [process for process in psutil.process_iter() if _is_step(process, folder)]
    for process in [*children_of(folder), *steps]:
        process.send_signal(signal.SIGTERM)


def _is_step(process, folder):
    try:
        return str(HURRIED) in process.cmdline() and Path(process.cwd()) == folder
    except psutil.Error:
        return False


@pytest.mark.parametrize("script", WITH_WORKERS, ids=lambda path: path.name)
def test_the_arguments_of_a_training_script_reach_search_and_workers(script, tmp_path, environ):
    """The stand-in of autotune writes down what it is told; the commands take that."""
    (tmp_path / "bin" / "autotune").write_text('#!/bin/bash\necho "$@" >> "$1.told"\n')
    options = ["--trials", "3"] if script.name == "search.sbatch" else []
    model = tmp_path / "train" / "train.py"
    model.parent.mkdir()
    model.touch()
    words = ["bash", script, model, *options, "--", "--epochs", "9"]
    subprocess.run(words, cwd=tmp_path, env={**environ, "SLURM_NTASKS": "3"}, check=True)
    commands = ["search", "worker"] if options else ["worker"]
    for name in commands:
        file = tmp_path / f"{name}.told"
        assert wait_until(file.exists, seconds=20)
        _, *told_words = file.read_text().split()
        context = cli.get_command(None, name).make_context(name, told_words)
        assert context.params["study"] == "train"
        assert context.params["storage"] == environ["AUTOTUNE_STORAGE"]
        assert list(context.meta.values()) == [("--epochs", "9")]


def measured(url):
    """The finished trials; none before the search has made the study."""
    try:
        return told(trials_in(url, "train"))
    except (KeyError, StorageError):
        return {}


@pytest.mark.long
@covers("R17")
@pytest.mark.timeout(3 * LONG)
def test_the_slurm_script_goes_on_where_its_time_limit_ended_it(tmp_path, environ, server_storage):
    model = place(tmp_path / "train")
    (model.parent / "space.yaml").rename(tmp_path / "space.yaml")
    url = environ["AUTOTUNE_STORAGE"] = server_storage
    job = submitted(tmp_path, environ)
    try:
        begun = wait_until(lambda: len(measured(url)) > 1, LONG)
        assert begun, (tmp_path / "log").read_text()
        end_all_steps(tmp_path)
        assert job.wait(LONG) == TERMINATED, (tmp_path / "log").read_text()
        assert nobody_is_left(tmp_path)
        assert (tmp_path / "requeued").read_text() == "requeue 7\n"
        before = measured(url)
        job = submitted(tmp_path, environ)
        assert job.wait(LONG) == 0, (tmp_path / "log").read_text()
    finally:
        for process in [job, *(p for p in psutil.process_iter() if _is_step(p, tmp_path))]:
            process.kill()
        job.wait()
    trials = trials_in(url, "train")
    assert len(told(trials)) == TRIALS
    assert len(before) > 1
    assert before.items() <= told(trials).items()
    reasons = [t.user_attrs["reason"] for t in trials if t.state.name == "COMPLETE"]
    assert not [reason for reason in reasons if "SIG" in reason or "signal" in reason], reasons
    assert (tmp_path / "requeued").read_text() == "requeue 7\n", "an answer ends the job"
    read_best(tmp_path / "studies" / "train" / "best.yaml")
