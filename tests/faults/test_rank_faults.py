"""One of two processes goes wrong, or their launcher: the trial says which, and all end."""

import subprocess
import sys
import threading
import time
from dataclasses import replace

import psutil
import pytest

from asked_scripts import SCRIPTS
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
from faulty_ranks import DEADLINE, LAUNCHED, MODEL, OF_LAUNCHER, OWN, SCRIPT, job_of, outcome_of

PARENT = """
import sys
from pathlib import Path
from autotune.configuration.job import job_from_json
from autotune.processes.runner import SubprocessRunner

folder = Path(sys.argv[1])
job = job_from_json((folder / "wanted.json").read_text())
SubprocessRunner(folder / "inductor", warm=False).run(job, folder / "trial")
"""
AS_LONG = pytest.param(LAUNCHED, marks=pytest.mark.long)
WITHOUT = "rank 1 ended without a result; log: stderr.rank1.log"
KILLED = "rank 1 was killed by SIGKILL; log: stderr.rank1.log"
ENDED = "rank 1 ended with code 3 and without a result; log: stderr.rank1.log"


def log_of(folder, name: str) -> str:
    return (folder / "trial" / name).read_text(encoding="utf-8", errors="replace")


@covers("T23", "T28")
@pytest.mark.parametrize(
    ("way", "fault", "said"),
    [
        (MODEL, "killed", KILLED),
        (SCRIPT, "killed", KILLED),
        pytest.param(LAUNCHED, "killed", KILLED, marks=pytest.mark.long),
        (SCRIPT, "leaves", ENDED),
        (OWN, "killed", WITHOUT),
    ],
)
def test_a_rank_that_dies_is_named_and_not_the_one_that_lost_its_peer(way, fault, said, tmp_path):
    assert outcome_of(way, fault, tmp_path) == Crashed(said)
    if way in (SCRIPT, LAUNCHED):
        how = "forked" if way == SCRIPT else "fresh interpreter"
        assert log_of(tmp_path, "launch").startswith(how)


@covers("T23", "T28")
@pytest.mark.parametrize(
    ("way", "fault"),
    [
        (MODEL, "raises"),
        (SCRIPT, "raises"),
        pytest.param(LAUNCHED, "raises", marks=pytest.mark.long),
        (SCRIPT, "exits"),
        (OWN, "raises"),
    ],
)
def test_a_rank_that_raises_is_named_with_its_line_and_its_log(way, fault, tmp_path):
    outcome = outcome_of(way, fault, tmp_path)
    assert isinstance(outcome, UserError), outcome
    raised = fault == "raises"
    error = "ValueError: rank 1 does not like this batch"
    assert f"rank 1: {error if raised else 'the code called sys.exit(7)'}" in outcome.detail
    assert "log: stderr.rank1.log" in outcome.detail
    of_model = way in (MODEL, OWN)
    place = WORKLOADS / "ranks.py" if of_model else SCRIPTS / "faulty_rank.py"
    assert outcome.where.startswith(f"{place}:")
    assert not raised or "does not like this batch" in log_of(tmp_path, "stderr.rank1.log")
    assert not of_model or (tmp_path / "trial" / "outcome.rank1.json").exists()


@covers("T24", "T28")
@pytest.mark.parametrize(("way", "fault"), [(MODEL, "stubborn"), (SCRIPT, "hangs"), (OWN, "hangs")])
def test_a_rank_that_hangs_ends_the_trial_at_its_deadline(way, fault, tmp_path):
    seconds = OF_LAUNCHER if way == OWN else DEADLINE
    outcome = outcome_of(way, fault, tmp_path, seconds)
    assert isinstance(outcome, TimedOut), outcome
    assert outcome.limit_seconds == seconds
    if way != OWN:
        assert outcome.phase == "measure"
        where = "in goes_wrong" if way == SCRIPT else "in go_wrong"
        assert where in log_of(tmp_path, "stderr.rank1.log"), "the stack says where"


@covers("T24")
@pytest.mark.parametrize("way", [MODEL, SCRIPT, AS_LONG])
def test_a_rank_that_was_stopped_for_a_while_disturbs_the_trial_alone(way, tmp_path):
    outcome = outcome_of(way, "stopped", tmp_path)
    assert isinstance(outcome, Measured), describe(outcome)
    assert any(block.noise.stopped for block in outcome.measurement.blocks)


@covers("T23")
@pytest.mark.parametrize("way", [MODEL, SCRIPT, AS_LONG])
def test_a_loss_that_is_no_number_on_one_rank_fails_the_trial(way, tmp_path):
    outcome = outcome_of(way, "diverges", tmp_path)
    assert isinstance(outcome, NonFinite), outcome
    assert outcome.detail.startswith("rank ")


@pytest.fixture
def in_two(tmp_path):
    def run(job):
        with SubprocessRunner(tmp_path / "inductor") as runner:
            return runner.run(replace(job, processes=2), tmp_path / "trial")

    return run


@covers("T25")
def test_a_stream_that_each_process_would_read_in_full_is_refused(in_two):
    job = replace(job_for(WORKLOADS / "rank_streams.py", task=Inspect()), config=None)
    outcome = in_two(job)
    assert isinstance(outcome, Rejected), outcome
    assert "samples of ranks 0 and 1 are the same" in outcome.detail


@covers("T25")
def test_a_rank_with_fewer_batches_is_named_and_nobody_waits_for_ever(in_two, tmp_path):
    source = "import rank_streams\nrank_streams.SPLITS = True\nfrom rank_streams import *\n"
    path = f"import sys; sys.path.insert(0, {str(WORKLOADS)!r})\n"
    model = written(tmp_path, path + source, "model.py")
    inspected = in_two(replace(job_for(model, task=Inspect()), config=None))
    assert isinstance(inspected, Inspected), inspected
    outcome = in_two(job_for(model, deadline_seconds=120.0))
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
    job = job_of(MODEL, "hangs", tmp_path)
    with SubprocessRunner(tmp_path / "inductor", warm=False) as runner:
        outcome = runner.run(job, tmp_path / "trial")
    assert children_of(tmp_path) == []
    killer.join()
    assert time.monotonic() - killed_at[0] < patience.strays, "nobody was waited for"
    assert outcome == Crashed("killed by SIGKILL")


@covers("T27")
@pytest.mark.parametrize("way", [MODEL, OWN])
def test_launcher_and_ranks_end_with_a_parent_that_is_killed(way, tmp_path):
    written(tmp_path, job_to_json(job_of(way, "hangs", tmp_path)), "wanted.json")
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)]) as parent:
        phases = [tmp_path / "trial" / name for name in ("phase", "phase.rank1")]

        def is_measuring() -> bool:
            return all(one.exists() and one.read_text() == "measure" for one in phases)

        assert wait_until(is_measuring, seconds=120)
        assert len(children_of(tmp_path)) == 3, "the launcher and two ranks"
        parent.kill()
    assert nobody_is_left(tmp_path)
