"""One of two processes goes wrong: the trial says which, both end, nothing is left."""

import subprocess
import sys
import threading
import time
from dataclasses import replace

import psutil
import pytest

from autotune.configuration.job import Inspect, job_to_json
from autotune.processes import runner as runner_of_jobs
from autotune.processes.runner import SubprocessRunner
from autotune.processes.running_child import OF_RANKS
from autotune.values.outcome import (
    Crashed,
    Inspected,
    Measured,
    NonFinite,
    Rejected,
    TimedOut,
    UserError,
    describe,
)
from children import WORKLOADS, children_of, job_for, nobody_is_left, wait_until
from covering import covers
from factories import written

KILLED, HANGS, RAISES, STOPPED, STUBBORN, DIVERGES = 16, 17, 18, 19, 20, 21
PARENT = """
import sys
from pathlib import Path
from autotune.configuration.job import job_from_json
from autotune.processes.runner import SubprocessRunner

folder = Path(sys.argv[1])
job = job_from_json((folder / "wanted.json").read_text())
SubprocessRunner(folder / "inductor", warm=False).run(job, folder / "trial")
"""
# Seconds; two processes join each other on a busy machine.
DEADLINE = 12.0


@pytest.fixture
def outcome_of(tmp_path):
    def run(job):
        with SubprocessRunner(tmp_path / "inductor") as runner:
            outcome = runner.run(replace(job, processes=2), tmp_path / "trial")
        assert nobody_is_left(tmp_path)
        return outcome

    return run


def log_of(folder, name: str) -> str:
    return (folder / "trial" / name).read_text(encoding="utf-8", errors="replace")


def faulty(batch_size: int, **options):
    return job_for(WORKLOADS / "ranks.py", {"batch_size": batch_size}, **options)


@covers("T23")
def test_a_killed_rank_is_named_and_not_the_one_that_lost_its_peer(outcome_of):
    outcome = outcome_of(faulty(KILLED))
    assert outcome == Crashed("rank 1 was killed by SIGKILL; log: stderr.rank1.log")


@covers("T23")
def test_a_rank_that_raises_is_named_with_its_line_and_its_log(outcome_of, tmp_path):
    outcome = outcome_of(faulty(RAISES))
    assert isinstance(outcome, UserError)
    assert "rank 1: ValueError: rank 1 does not like this batch" in outcome.detail
    assert "log: stderr.rank1.log" in outcome.detail
    assert outcome.where.startswith(f"{WORKLOADS / 'ranks.py'}:")
    assert "does not like this batch" in log_of(tmp_path, "stderr.rank1.log")
    assert (tmp_path / "trial" / "outcome.rank1.json").exists()


@covers("T24")
@pytest.mark.parametrize("batch_size", [pytest.param(HANGS, marks=pytest.mark.long), STUBBORN])
def test_a_rank_that_hangs_ends_the_trial_at_its_deadline(batch_size, outcome_of, tmp_path):
    outcome = outcome_of(faulty(batch_size, deadline_seconds=DEADLINE))
    assert outcome == TimedOut("measure", DEADLINE)
    assert "in go_wrong" in log_of(tmp_path, "stderr.rank1.log"), "the stack says where"


@covers("T24")
def test_a_rank_that_was_stopped_for_a_while_disturbs_the_trial_alone(outcome_of):
    outcome = outcome_of(faulty(STOPPED))
    assert isinstance(outcome, Measured), describe(outcome)
    assert any(block.noise.stopped for block in outcome.measurement.blocks)


@covers("T23")
def test_a_loss_that_is_no_number_on_one_rank_fails_the_trial(outcome_of):
    outcome = outcome_of(faulty(DIVERGES))
    assert isinstance(outcome, NonFinite), outcome
    assert outcome.detail.startswith("rank ")


@covers("T25")
def test_a_stream_that_each_process_would_read_in_full_is_refused(outcome_of):
    job = replace(job_for(WORKLOADS / "rank_streams.py", task=Inspect()), config=None)
    outcome = outcome_of(job)
    assert isinstance(outcome, Rejected), outcome
    assert "samples of ranks 0 and 1 are the same" in outcome.detail


@covers("T25")
def test_a_rank_with_fewer_batches_is_named_and_nobody_waits_for_ever(outcome_of, tmp_path):
    source = "import rank_streams\nrank_streams.SPLITS = True\nfrom rank_streams import *\n"
    path = f"import sys; sys.path.insert(0, {str(WORKLOADS)!r})\n"
    model = written(tmp_path, path + source, "model.py")
    inspected = outcome_of(replace(job_for(model, task=Inspect()), config=None))
    assert isinstance(inspected, Inspected), inspected
    outcome = outcome_of(job_for(model, deadline_seconds=120.0))
    assert isinstance(outcome, Rejected), outcome
    assert "rank 1 has fewer batches in an epoch than others (rank 0: " in outcome.detail


@pytest.mark.fresh
@covers("T27")
def test_ranks_end_at_once_with_a_launcher_that_is_killed(tmp_path, monkeypatch):
    """They have sessions of their own, and helpers there would be waited for."""
    patience = OF_RANKS._replace(strays=60.0)
    monkeypatch.setattr(runner_of_jobs, "OF_RANKS", patience)
    killed_at = []

    def kill_launcher() -> None:
        phases = [tmp_path / "trial" / name for name in ("phase", "phase.rank1")]
        assert wait_until(
            lambda: all(one.exists() and one.read_text() == "measure" for one in phases), 100
        )
        own = psutil.Process().children()
        (launcher,) = (one for one in own if one in children_of(tmp_path))
        assert len(children_of(tmp_path)) == 3, "the launcher and two ranks"
        killed_at.append(time.monotonic())
        launcher.kill()

    killer = threading.Thread(target=kill_launcher)
    killer.start()
    job = replace(faulty(HANGS), processes=2)
    with SubprocessRunner(tmp_path / "inductor", warm=False) as runner:
        outcome = runner.run(job, tmp_path / "trial")
    assert children_of(tmp_path) == []
    killer.join()
    assert time.monotonic() - killed_at[0] < patience.strays, "nobody was waited for"
    assert outcome == Crashed("killed by SIGKILL")


@covers("T27")
def test_launcher_and_ranks_end_with_a_parent_that_is_killed(tmp_path):
    job = replace(faulty(HANGS), processes=2)
    written(tmp_path, job_to_json(job), "wanted.json")
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)]) as parent:
        phases = [tmp_path / "trial" / name for name in ("phase", "phase.rank1")]

        def is_measuring() -> bool:
            return all(one.exists() and one.read_text() == "measure" for one in phases)

        assert wait_until(is_measuring, seconds=120)
        assert len(children_of(tmp_path)) == 3, "the launcher and two ranks"
        parent.kill()
    assert nobody_is_left(tmp_path)
