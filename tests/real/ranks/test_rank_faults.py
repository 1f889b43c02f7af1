"""One of two processes goes wrong, or their launcher: the trial says which, and all end."""

import socket
import threading
import time
from dataclasses import replace

import psutil
import pytest

from asked_scripts import SCRIPTS, Ask, InTwo
from autotune.configuration.job import Measure, TakeFirstSteps
from autotune.process import children
from autotune.process.children import PATIENT
from autotune.process.runner import SubprocessRunner
from autotune.values import outcome as outcomes
from autotune.values.outcome import Crashed, Rejected, TimedOut, UserError
from children import (
    QUICK,
    WORKLOADS,
    children_of,
    ended_as,
    job_for,
    nobody_is_left,
    start_parent,
    wait_until,
)
from covering import covers
from factories import written
from tiers import late

DEADLINE, PATIENCE = 16.0, 300.0
"""Seconds until a trial is ended: one that hangs once its ranks have imported torch, any other."""
FAULTS = {"killed": 16, "hangs": 17, "raises": 18, "stopped": 19, "stubborn": 20, "diverges": 21}
"""Batch size with which rank 1 of the workload goes wrong so; a script is told by an argument."""
# Each stand-in starts two ranks in torch's words; like srun, it leaves the others if one fails.
START = """
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT={port} "$@" &
done
"""
LEAVES_OTHERS = "#!/bin/bash\n" + START + "wait\n"
STARTS_ONE = """#!/bin/bash
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT={port} exec "$@"
"""
MODEL, SCRIPT = "a model.py by torch's launcher", "a script by torch's launcher"
OWN = "a model.py by the user's launcher"
WITHOUT = "rank 1 ended without a result; log: stderr.rank1.log"
KILLED = "rank 1 was killed by SIGKILL; log: stderr.rank1.log"


def job_of(way, fault, folder, launcher=LEAVES_OTHERS):
    """The job of a model.py, of two processes."""
    settings = {"batch_size": FAULTS[fault]}
    job = replace(job_for(WORKLOADS / "ranks.py", settings), processes=2)
    if way == MODEL:
        return replace(job, deadline_seconds=PATIENCE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = written(folder, launcher.replace("{port}", str(port)), "launcher")
    path.chmod(0o755)
    return replace(job, host=None, launch=(str(path),), deadline_seconds=DEADLINE)


def run(job, folder):
    """The outcome of a job, of which nothing is left."""
    with SubprocessRunner(folder / "inductor") as runner:
        try:
            return runner.run(job, folder / "trial")
        finally:
            assert nobody_is_left(folder)


def script_outcome(folder, script, *words, seconds=PATIENCE):
    with SubprocessRunner(folder / "inductor") as runner:
        ask = Ask(InTwo(runner, seconds), folder / "trial")
        outcome = ask(script, *words, task=Measure(QUICK), settings={})
    assert nobody_is_left(folder)
    return outcome


def outcome_of(way, fault, folder, seconds=PATIENCE):
    """The outcome of two processes that were started in a way; nothing of them is left."""
    if way == SCRIPT:
        return script_outcome(folder, "faulty_rank.py", fault, seconds=seconds)
    return run(replace(job_of(way, fault, folder), deadline_seconds=seconds), folder)


def log_of(folder, name):
    return (folder / "trial" / name).read_text(encoding="utf-8", errors="replace")


@covers("T23", "T28")
@pytest.mark.parametrize(("way", "said"), [(SCRIPT, KILLED), (OWN, WITHOUT)])
def test_a_rank_that_dies_is_named_and_not_the_one_that_lost_its_peer(way, said, tmp_path):
    assert outcome_of(way, "killed", tmp_path) == Crashed(said)
    assert (log_of(tmp_path, "launch") == "started by torch's launcher\n") == (way != OWN)


@covers("T23")
def test_a_rank_that_raises_is_named_with_its_line_and_its_log(tmp_path):
    outcome = ended_as(UserError, outcome_of(MODEL, "raises", tmp_path))
    assert "rank 1: ValueError: rank 1 does not like this batch" in outcome.detail
    assert "log: stderr.rank1.log" in outcome.detail
    assert outcome.where.startswith(f"{WORKLOADS / 'ranks.py'}:")
    assert "does not like this batch" in log_of(tmp_path, "stderr.rank1.log")
    assert (tmp_path / "trial" / "outcome.rank1.json").exists()


@covers("T24", "T28")
@pytest.mark.parametrize(("way", "fault"), [(MODEL, "stubborn"), late(OWN, "hangs")])
def test_a_rank_that_hangs_ends_the_trial_at_its_deadline(way, fault, tmp_path):
    outcome = ended_as(TimedOut, outcome_of(way, fault, tmp_path, DEADLINE))
    assert outcome.limit_seconds == DEADLINE
    if way == MODEL:
        assert outcome.phase == "measure"
        assert "in go_wrong" in log_of(tmp_path, "stderr.rank1.log"), "the stack says where"


@covers("T24")
def test_a_rank_that_was_stopped_for_a_while_disturbs_the_trial_alone(tmp_path):
    outcome = ended_as(outcomes.Measured, outcome_of(MODEL, "stopped", tmp_path))
    assert any(block.noise.stopped for block in outcome.measurement.blocks)


@covers("T23")
def test_a_loss_that_is_no_number_on_one_rank_fails_the_trial(tmp_path):
    outcome = ended_as(outcomes.NonFinite, outcome_of(SCRIPT, "diverges", tmp_path))
    assert outcome.detail.startswith("rank ")


@covers("T25")
def test_a_rank_with_fewer_batches_is_named_and_nobody_waits_for_ever(tmp_path):
    job = job_for(WORKLOADS / "rank_streams.py", deadline_seconds=120.0)
    outcome = ended_as(Rejected, run(replace(job, processes=2), tmp_path))
    assert "rank 1 has fewer batches in an epoch than others (rank 0: " in outcome.detail


@covers("T25")
def test_a_rank_whose_training_ends_before_the_others_is_named(tmp_path):
    outcome = ended_as(UserError, outcome_of(SCRIPT, "ends early", tmp_path))
    assert "rank 1: it ended after 5 steps, too few to be timed" in outcome.detail


@covers("T28")
def test_processes_that_never_join_each_other_are_refused_with_what_to_do(tmp_path):
    outcome = ended_as(UserError, script_outcome(tmp_path, "plain_loop.py", "--epochs", "1000"))
    assert "nothing calls torch.distributed.init_process_group" in outcome.detail


def test_a_loss_is_the_mean_over_the_ranks(tmp_path):
    source = (SCRIPTS / "faulty_rank.py").read_text()
    changed = source.replace("loss.backward()", "(loss * 0 + 10 * rank + step).backward()")
    script = written(tmp_path, changed, "offset.py")
    with SubprocessRunner(tmp_path / "inductor") as runner:
        ask = Ask(InTwo(runner), tmp_path / "trial")
        found = ask(str(script), "none", task=TakeFirstSteps(4), settings={})
    assert found.losses == pytest.approx((5.0, 6.0, 7.0, 8.0))


@pytest.fixture
def taken():
    """The number of a port at which a program listens that answers nobody."""
    with socket.create_server(("127.0.0.1", 0)) as program:
        yield str(program.getsockname()[1])


@covers("T28")
def test_a_port_in_use_is_named(taken, tmp_path):
    job = job_of(OWN, "hangs", tmp_path, LEAVES_OTHERS.replace("{port}", taken))
    outcome = ended_as(UserError, run(replace(job, deadline_seconds=PATIENCE), tmp_path))
    assert "EADDRINUSE" in outcome.detail


def test_a_script_with_an_address_that_is_taken_says_so_or_where_it_waits(taken, tmp_path):
    arguments = ("faulty_rank.py", "port in use", taken)
    outcome = script_outcome(tmp_path, *arguments, seconds=DEADLINE)
    if isinstance(outcome, UserError):
        assert "EADDRINUSE" in outcome.detail
    else:  # with torch 2.11 all ranks connect to the port, where nobody answers
        assert ended_as(TimedOut, outcome).phase.startswith("the script's start")
        assert "in init_process_group" in log_of(tmp_path, "stderr.log")


@covers("T29")
def test_a_launcher_that_starts_too_few_processes_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("autotune.process.ranks.PATIENCE_SECONDS", 1.0)
    found = ended_as(outcomes.Lost, run(job_of(OWN, "hangs", tmp_path, STARTS_ONE), tmp_path))
    assert "the launcher started 1 of 2 processes within 1 s, without rank 1" in found.detail


def both_measure(folder):
    phases = [folder / "trial" / name for name in ("phase", "phase.rank1")]
    return lambda: all(one.exists() and one.read_text() == "measure" for one in phases)


@pytest.mark.fresh
@covers("T27")
def test_ranks_end_at_once_with_a_launcher_that_is_killed(tmp_path, monkeypatch):
    """They have sessions of their own, and helpers there would be waited for."""
    patience = PATIENT._replace(strays=60.0)
    monkeypatch.setattr(children, "PATIENT", patience)
    killed_at = []

    def kill_launcher():
        assert wait_until(both_measure(tmp_path), 100)
        own = psutil.Process().children()
        (launcher,) = (one for one in own if one in children_of(tmp_path))
        assert len(children_of(tmp_path)) == 3, "the launcher and two ranks"
        killed_at.append(time.monotonic())
        launcher.kill()

    killer = threading.Thread(target=kill_launcher)
    killer.start()
    outcome = run(job_of(MODEL, "hangs", tmp_path), tmp_path)
    killer.join()
    assert time.monotonic() - killed_at[0] < patience.strays, "nobody was waited for"
    assert outcome == Crashed("killed by SIGKILL")


@covers("T27")
@pytest.mark.parametrize("way", [late(MODEL), OWN])
def test_launcher_and_ranks_end_with_a_parent_that_is_killed(way, tmp_path):
    job = replace(job_of(way, "hangs", tmp_path), deadline_seconds=PATIENCE)
    with start_parent(tmp_path, job) as parent:
        assert wait_until(both_measure(tmp_path), seconds=120)
        assert len(children_of(tmp_path)) == 3, "the launcher and two ranks"
        parent.kill()
    assert nobody_is_left(tmp_path)
