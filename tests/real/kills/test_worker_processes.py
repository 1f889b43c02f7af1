"""`autotune worker` as it is used: processes on PostgreSQL, one of them killed."""

import pytest

from children import nobody_is_left, start_hurried, wait_until
from covering import covers
from held import CORES, FLAGS, LONG, TRIALS, held_on, hold, place, release, told, trials_in

pytestmark = [
    pytest.mark.usefixtures("devices_to_itself"),
    pytest.mark.skipif(len(CORES) < 2, reason="needs two cores"),
]
STUDY = "shared"


@pytest.fixture
def folder(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.mkdir()
    return hosts


@covers("S10")
def test_a_worker_that_is_killed_loses_nothing_and_nothing_is_measured_twice(
    folder, server_storage
):
    """A search on one core leads; of two workers on the other, one goes on for the first."""
    leads, dies, lives = (folder / name for name in ("leads", "dies", "lives"))
    model = place(leads)
    dies.mkdir()
    lives.mkdir()
    first, second = CORES
    hold(leads, first)
    hold(dies, second)
    shared = ["--storage", server_storage]
    led = ["search", "waits.py", "--study", STUDY, "--device", f"cpu:{first}", *shared, *FLAGS]
    leader = start_hurried(leads, *led)
    joins = ["worker", STUDY, *shared, "--model", model, "--device", f"cpu:{second}"]
    started = [leader, dying := start_hurried(dies, *joins)]
    try:
        held_on(leads, first, leader)
        held_on(dies, second, dying)
        started.append(living := start_hurried(lives, *joins))
        dying.kill()
        dying.wait()
        assert nobody_is_left(dies)
        taken_over = wait_until(
            lambda: len(told(trials_in(server_storage, STUDY))) >= TRIALS - 1, LONG
        )
        assert taken_over, (lives / "stderr.txt").read_text()
        release(leads, first)
        assert leader.wait(LONG) == 0, (leads / "stderr.txt").read_text()
        assert living.wait(LONG) == 0, (lives / "stderr.txt").read_text()
    finally:
        for process in started:
            process.kill()
            process.wait()
    trials = trials_in(server_storage, STUDY)
    assert len(told(trials)) == TRIALS
    (lost,) = [trial for trial in trials if trial.state.name != "COMPLETE"]
    assert lost.state.name == "FAIL"
    assert lost.user_attrs["config"]["batch_size"] in told(trials), "tried once more"
    assert (leads / "studies" / STUDY / "best.yaml").exists()
    assert (lives / f"seen-{second}").read_text() == f"[{second}]"
    assert nobody_is_left(folder)
