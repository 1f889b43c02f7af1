"""The user's launcher goes wrong: it is named, all ends, nothing is left."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.processes.runner import SubprocessRunner
from autotune.processes.running_child import OF_RANKS
from autotune.values.errors import TooManyLostError
from autotune.values.outcome import Lost, TimedOut, TrialOutcome, UserError
from children import nobody_is_left
from covering import covers
from faulty_ranks import LEAVES_OTHERS, START, launching

ENDS_LATE = "#!/bin/bash\ntrap 'sleep 2; kill -KILL $(jobs -p); exit 143' TERM\n" + START + "wait\n"
# `wait` returns for a signal, ignored ones aside.
NEVER_ENDS = "#!/bin/bash\ntrap '' TERM\n" + START + "wait\n"
STARTS_ONE = """#!/bin/bash
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT={port} exec "$@"
"""
HIDES = "#!/bin/bash\nmv $(dirname $1)/rank $(dirname $1)/hidden\n" + START + "wait -n\nexit $?\n"
Runs = Callable[..., TrialOutcome]


@pytest.fixture
def outcome_of(tmp_path: Path) -> Runs:
    def run(script: str) -> TrialOutcome:
        job = launching(tmp_path, script)
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
