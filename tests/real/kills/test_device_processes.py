"""A search on several devices as it is used: real children, killed, and every signal among them."""

import os
import signal
import time
from contextlib import contextmanager
from types import SimpleNamespace

import psutil
import pytest

from autotune.searching.search import SO_FAR
from children import nobody_is_left, start_hurried, stop, wait_until
from covering import covers
from held import CORES, FLAGS, LONG, TRIALS, held_on, hold, place, release, told, trials_in
from tiers import late

pytestmark = [
    pytest.mark.usefixtures("devices_to_itself"),
    pytest.mark.skipif(len(CORES) < 2, reason="needs two cores"),
]
INTERRUPTED, TERMINATED = 130, 143
KILLED = "killed by SIGKILL"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    place(folder)
    return folder


@contextmanager
def searching(folder):
    """The search of this folder, on both cores at once: begun, or continued."""
    devices = ",".join(f"cpu:{core}" for core in CORES)
    search = start_hurried(folder, "search", "waits.py", "--device", devices, *FLAGS)
    try:
        yield search
    finally:
        search.kill()
        search.wait()


def trials_of(folder):
    return trials_in(f"sqlite:///{folder}/studies/waits/study.db", "waits")


def reasons(folder):
    return [trial.user_attrs.get("reason", "") for trial in trials_of(folder)]


def confirming(folder):
    return any(folder.glob("studies/waits/trials/confirm/**/job.json"))


def said(folder):
    return (folder / "stderr.txt").read_text()


def end(search, *numbers):
    """The exit code after these signals, in the order given."""
    for number in numbers[:-1]:
        search.send_signal(number)
        time.sleep(0.2)
        assert search.poll() is None
    return stop(search, numbers[-1])


def check_ended(folder, before):
    """Nobody is left, and what was told before is there as it was."""
    assert nobody_is_left(folder)
    assert "Traceback" not in said(folder)
    now = told(trials_of(folder))
    assert before.items() <= now.items()


@pytest.fixture(scope="module")
def killed(folder, devices_to_itself):
    """The search, in which one of two children was killed, and which a signal ended then."""
    hold(folder, *CORES)
    with searching(folder) as search:
        children = [held_on(folder, core, search) for core in CORES]
        cores = [psutil.Process(child).cpu_affinity() for child in children]
        os.kill(children[1], signal.SIGKILL)
        is_told = wait_until(lambda: any(KILLED in why for why in reasons(folder)), seconds=LONG)
        assert is_told, said(folder)
        other_goes_on = psutil.pid_exists(children[0])
        code = end(search, signal.SIGTERM)
    check_ended(folder, {})
    return SimpleNamespace(cores=cores, other_goes_on=other_goes_on, code=code)


@covers("R3")
def test_each_child_has_its_own_core_and_one_that_is_killed_is_told_as_that(killed, folder):
    assert killed.cores == [[core] for core in CORES]
    assert killed.other_goes_on
    assert killed.code == TERMINATED
    assert "interrupted" in reasons(folder)


@covers("R4")
def test_a_terminal_that_is_lost_ends_the_trials_of_all_devices(folder):
    before = told(trials_of(folder))
    hold(folder, *CORES)
    with searching(folder) as search:
        for core in CORES:
            held_on(folder, core, search)
        assert end(search, signal.SIGHUP) == TERMINATED
    check_ended(folder, before)
    assert "To continue:" in said(folder)


@covers("R1")
def test_the_trial_in_which_one_signal_comes_is_kept(tmp_path):
    core = CORES[0]
    place(tmp_path)
    hold(tmp_path, core)
    search = start_hurried(tmp_path, "search", "waits.py", "--device", f"cpu:{core}", *FLAGS)
    try:
        held_on(tmp_path, core, search)
        before = told(trials_of(tmp_path))
        search.send_signal(signal.SIGINT)
        assert wait_until(lambda: "again to stop now" in said(tmp_path), LONG), said(tmp_path)
        release(tmp_path, core)
        assert search.wait(LONG) == INTERRUPTED
    finally:
        search.kill()
        search.wait()
    check_ended(tmp_path, before)
    assert [trial.state.name for trial in trials_of(tmp_path)] == ["COMPLETE"] * (len(before) + 1)
    text = said(tmp_path)
    assert f"To continue:\n  autotune search waits.py --device cpu:{core}" in text
    (so_far,) = tmp_path.rglob(SO_FAR)
    assert f"The fastest trial so far (not confirmed): {so_far.relative_to(tmp_path)}" in text
    assert "trial: 1\n" in so_far.read_text()
    assert not list(tmp_path.rglob("best.yaml"))


@covers("R2", "R3")
@pytest.mark.parametrize(
    ("numbers", "code"),
    [((signal.SIGTERM,), TERMINATED), late((signal.SIGINT, signal.SIGINT), INTERRUPTED)],
    ids=["SIGTERM", "Ctrl-C twice"],
)
def test_a_signal_in_the_confirmation_ends_its_child(numbers, code, folder):
    begun = folder.joinpath("studies").exists()
    before = told(trials_of(folder)) if begun else {}
    release(folder, *CORES)
    for job in folder.glob("studies/waits/trials/confirm/**/job.json"):
        job.unlink()
    with searching(folder) as search:
        assert wait_until(lambda: confirming(folder) or search.poll() is not None, LONG)
        hold(folder, *CORES)
        held_on(folder, CORES[0], search)
        assert end(search, *numbers) == code, said(folder)
    check_ended(folder, before)
    assert not list(folder.rglob("best.yaml"))


@pytest.mark.usefixtures("killed")
def test_a_run_that_was_stopped_so_often_comes_to_its_end(folder):
    before = told(trials_of(folder))
    release(folder, *CORES)
    with searching(folder) as search:
        assert search.wait(LONG) == 0, said(folder)
    check_ended(folder, before)
    assert len(told(trials_of(folder))) == TRIALS
    assert sum(KILLED in why for why in reasons(folder)) == 1, "it was not run again"
    assert list(folder.rglob("best.yaml"))
