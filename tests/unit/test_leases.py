"""A trial names the process that runs it, and is tried again when that is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import optuna
import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.storage.leases import Lease, lease_of, own_lease
from covering import covers
from study_factories import HOLDS, opened, tell


@pytest.fixture
def neighbour() -> Iterator[Lease]:
    """The lease of another process that lives."""
    program = (
        "import json, sys\n"
        "from autotune.storage.leases import own_lease\n"
        "print(json.dumps(own_lease().as_dict()), flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        lease = lease_of(json.loads(other.stdout.readline()))
        assert lease is not None
        yield lease
        other.stdin.close()


def left_by(lease: Lease, space: SearchSpace, url: str) -> None:
    """A study with a trial that runs under this lease."""
    study = opened(url, space)
    study._mutex.lease = lease
    study.ask()


def states(url: str) -> list[str]:
    return [t.state.name for t in optuna.load_study(study_name="s", storage=url).trials]


def reopened(url: str, space: SearchSpace):
    study = opened(url, space, sampler="auto")
    study.reap()
    return study


def test_only_a_process_of_this_machine_is_surely_dead(neighbour: Lease) -> None:
    assert not own_lease().died_here()
    assert not neighbour.died_here()
    assert replace(neighbour, started=neighbour.started - 1).died_here(), "its number lives on"
    gone = replace(neighbour, pid=2**30)
    assert gone.died_here()
    assert not replace(gone, host="another").died_here()
    assert not replace(gone, boot_id="another").died_here()


def test_a_lease_is_read_back_and_anything_else_is_none() -> None:
    lease = own_lease()
    assert lease_of(lease.as_dict()) == lease
    assert lease_of(None) is None
    assert lease_of({"pid": 1}) is None


@covers("R7")
def test_a_trial_of_a_living_process_is_left_alone(
    neighbour: Lease, nine: SearchSpace, url: str
) -> None:
    left_by(neighbour, nine, url)
    study = reopened(url, nine)
    assert states(url) == ["RUNNING"]
    assert study.others_run()
    proposed = {tell(study, 1.0, HOLDS) for _ in range(8)}
    assert study.exhausted(), "what another runs is known"
    assert len(proposed) == 8


@covers("R6", "R7")
@pytest.mark.parametrize(
    "change",
    [{"pid": 2**22 + 1}, {"started": 1.0}, {"boot_id": "another"}, {"host": "another"}],
    ids=["dead", "pid used again", "rebooted", "another host"],
)
def test_a_trial_whose_process_is_gone_is_given_up_and_tried_once_more(
    change: dict[str, object], neighbour: Lease, nine: SearchSpace, url: str
) -> None:
    left_by(replace(neighbour, **change), nine, url)
    study = reopened(url, nine)
    assert states(url) == ["FAIL"]
    (given_up,) = study._study.trials
    assert given_up.user_attrs["reason"].startswith("interrupted")
    claimed = study.claim(9)
    assert claimed is not None
    assert claimed[1].as_dict() == given_up.user_attrs["config"], "first of all"


@covers("R6")
def test_a_trial_that_was_abandoned_twice_is_not_tried_again(
    neighbour: Lease, nine: SearchSpace, url: str
) -> None:
    dead = replace(neighbour, pid=2**22 + 1)
    left_by(dead, nine, url)
    study = reopened(url, nine)
    study._mutex.lease = dead
    _, config = study.claim(9) or (0, None)
    study = reopened(url, nine)
    assert states(url) == ["FAIL", "FAIL"]
    assert study.is_settled(config)
    assert config not in {tell(study, 1.0, HOLDS) for _ in range(8)}


def test_a_trial_that_a_person_interrupted_comes_first_however_often(
    nine: SearchSpace, url: str
) -> None:
    wanted = None
    for _ in range(3):
        study = reopened(url, nine)
        number, config = study.claim(9) or (0, None)
        assert wanted in (None, config)
        wanted = config
        study.lose(number, "interrupted")


def test_nobody_claims_more_than_the_total(nine: SearchSpace, url: str) -> None:
    study = reopened(url, nine)
    assert study.claim(2) is not None
    assert study.claim(2) is not None
    assert study.claim(2) is None
