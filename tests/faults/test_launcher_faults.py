"""Processes of a launcher go wrong, or the launcher does: named, ended, nothing left."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.configuration.job import Job, job_to_json
from autotune.processes.runner import SubprocessRunner
from autotune.processes.running_child import OF_RANKS
from autotune.values.errors import TooManyLostError
from autotune.values.outcome import Crashed, Lost, TimedOut, TrialOutcome, UserError
from children import WORKLOADS, children_of, job_for, nobody_is_left, wait_until
from covering import covers
from factories import written

KILLED, HANGS, RAISES = 16, 17, 18
DEADLINE = 20.0
# Each stand-in starts two ranks in torch's words; like srun, it leaves the others if one fails.
START = """
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT={port} "$@" &
done
"""
LEAVES_OTHERS = "#!/bin/bash\n" + START + "wait\n"
ENDS_LATE = "#!/bin/bash\ntrap 'sleep 2; kill -KILL $(jobs -p); exit 143' TERM\n" + START + "wait\n"
# `wait` returns for a signal, ignored ones aside.
NEVER_ENDS = "#!/bin/bash\ntrap '' TERM\n" + START + "wait\n"
STARTS_ONE = """#!/bin/bash
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT={port} exec "$@"
"""
HIDES = "#!/bin/bash\nmv $(dirname $1)/rank $(dirname $1)/hidden\n" + START + "wait -n\nexit $?\n"
PARENT = """
import sys
from pathlib import Path
from autotune.configuration.job import job_from_json
from autotune.processes.runner import SubprocessRunner

folder = Path(sys.argv[1])
job = job_from_json((folder / "wanted.json").read_text())
SubprocessRunner(folder / "inductor", warm=False).run(job, folder / "trial")
"""

Runs = Callable[..., TrialOutcome]


def launching(folder: Path, script: str, batch_size: int) -> Job:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launcher = written(folder, script.replace("{port}", str(port)), "launcher")
    launcher.chmod(0o755)
    job = job_for(
        WORKLOADS / "ranks.py", {"batch_size": batch_size}, deadline_seconds=DEADLINE, host=None
    )
    return replace(job, processes=2, launch=(str(launcher),))


@pytest.fixture
def outcome_of(tmp_path: Path) -> Runs:
    def run(script: str, batch_size: int = HANGS) -> TrialOutcome:
        job = launching(tmp_path, script, batch_size)
        with SubprocessRunner(tmp_path / "inductor") as runner:
            try:
                return runner.run(job, tmp_path / "trial")
            finally:
                assert nobody_is_left(tmp_path)

    return run


@pytest.fixture
def on_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """To this process, the ranks run on another host, which has no lifeline to it."""
    for module in ("autotune.system.launched", "autotune.system.child_ties"):
        monkeypatch.setattr(f"{module}.this_host", lambda: "here")


@covers("T28")
def test_a_rank_that_is_killed_is_named_and_not_the_one_that_lost_it(outcome_of: Runs) -> None:
    found = outcome_of(LEAVES_OTHERS, KILLED)
    assert found == Crashed("rank 1 ended without a result; log: stderr.rank1.log")


@covers("T28")
def test_a_rank_that_raises_ends_those_that_the_launcher_leaves(outcome_of: Runs) -> None:
    found = outcome_of(LEAVES_OTHERS, RAISES)
    assert isinstance(found, UserError), found
    assert "rank 1: ValueError: rank 1 does not like this batch" in found.detail


@covers("T28")
def test_a_rank_that_hangs_ends_with_all_others_within_seconds(outcome_of: Runs) -> None:
    assert outcome_of(LEAVES_OTHERS) == TimedOut("measure", DEADLINE)


@covers("T29")
def test_a_launcher_that_starts_one_of_two_is_named(
    outcome_of: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.processes.launched_ranks.PATIENCE_SECONDS", 1.0)
    found = outcome_of(STARTS_ONE)
    assert isinstance(found, Lost), found
    assert "the launcher started 1 of 2 processes within 1 s, without rank 1" in found.detail


@covers("T30")
def test_a_folder_that_a_host_does_not_see_is_named_with_what_to_do(outcome_of: Runs) -> None:
    found = outcome_of(HIDES)
    assert isinstance(found, Lost), found
    assert "All hosts have to see the folder of the study" in found.detail


@covers("T28")
def test_a_port_in_use_is_named(outcome_of: Runs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = outcome_of(LEAVES_OTHERS.replace("{port}", str(port)))
    assert isinstance(found, UserError), found
    assert "EADDRINUSE" in found.detail


@pytest.mark.long
@covers("T31")
@pytest.mark.usefixtures("on_another_host")
def test_a_launcher_has_time_to_end_its_processes_on_other_hosts(
    outcome_of: Runs, tmp_path: Path
) -> None:
    assert isinstance(outcome_of(ENDS_LATE), TimedOut)
    note = (tmp_path / "trial" / "launch").read_text()
    assert "it has ended its processes on other hosts within " in note


@covers("T31")
@pytest.mark.usefixtures("on_another_host")
def test_a_launcher_that_does_not_end_them_ends_the_search(
    outcome_of: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that it has left there would disturb each further trial."""
    patience = OF_RANKS._replace(elsewhere=1.0)
    monkeypatch.setattr("autotune.processes.runner.OF_RANKS", patience)
    with pytest.raises(
        TooManyLostError, match=r"has not ended rank 0 on .*, rank 1 on .* within 1"
    ):
        outcome_of(NEVER_ENDS)


@covers("T27")
def test_launcher_and_ranks_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    written(tmp_path, job_to_json(launching(tmp_path, LEAVES_OTHERS, HANGS)), "wanted.json")
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)]) as parent:
        phases = [tmp_path / "trial" / name for name in ("phase", "phase.rank1")]

        def is_measuring() -> bool:
            return all(one.exists() and one.read_text() == "measure" for one in phases)

        assert wait_until(is_measuring, seconds=120)
        assert len(children_of(tmp_path)) == 3, "the launcher and two ranks"
        parent.kill()
    assert nobody_is_left(tmp_path)
