"""Kills searches with SIGKILL at random moments, and checks what is left each time.

`python kill_points.py FOLDER SEED KILLS` prints one line of JSON when all is well, and ends with a
traceback where something is not. Everything runs in forks of this process, which has imported all
that is needed, so that a kill costs no start. Trials are scripted; their children are real
processes on a real lifeline.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import optuna
import psutil

from autotune.configuration.best_config import read_best
from autotune.process.common.child_ties import hold_lifeline, this_host
from autotune.searching.run.events import Answered
from autotune.searching.search import search
from autotune.study.storage import study_lock
from autotune.values.strict_yaml import read
from children import wait_until
from scripted_runner import ScriptedRunner, at, batch_of, options_in

SPACE = "batch_size: [8, 16, 32, 64, 128]\nnum_workers: [0, 1, 2, 3, 4]\nprefetch_factor: [2, 4]\n"
TRIALS = 8
LONGEST_RUN_SECONDS = 0.4


@dataclass
class ScriptedChildren(ScriptedRunner):
    """Each answer comes after a child that lives some milliseconds, if its parent does."""

    pids: Path = field(default_factory=Path)

    def run(self, job: Any, folder: Path) -> Any:
        descriptor, other_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(other_end)
            os.setsid()
            hold_lifeline(f"{this_host()}:/proc/self/fd/{descriptor}")
            time.sleep(0.005)
            os._exit(0)
        with self.pids.open("a") as file:
            file.write(f"{child}\n")
        os.waitpid(child, 0)
        os.close(descriptor)
        os.close(other_end)
        return super().run(job, folder)


def search_in(folder: Path) -> None:
    """A whole search, or what is left of it."""
    runner = ScriptedChildren(lambda config, phase: at(10 * batch_of(config)))
    runner.pids = folder / "pids"
    options = options_in(folder, space=SPACE, trials=TRIALS)
    with study_lock(folder):
        events = list(search(options, runner))
    assert isinstance(events[-1], Answered)


def do_in_fork(action: Callable[[Path], None], folder: Path) -> None:
    """Do this in a process of its own, to its end."""
    _, status = os.waitpid(in_fork(action, folder), 0)
    assert status == 0


def in_fork(action: Callable[[Path], None], folder: Path) -> int:
    """The number of a process that does this and leaves."""
    child = os.fork()
    if child == 0:
        _leave_after(action, folder)
    return child


def _leave_after(action: Callable[[Path], None], folder: Path) -> NoReturn:
    code = 1
    try:
        action(folder)
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(code)


def is_killed(folder: Path, seconds: float) -> bool:
    """Return True if a search was still running after so long, and was killed."""
    child = in_fork(search_in, folder)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"the search failed with {code}"
    return code != 0


def nobody_lives(folder: Path) -> bool:
    """Return True if all children that were started are gone within two seconds."""
    path = folder / "pids"
    pids = [int(line) for line in path.read_text().split()] if path.exists() else []
    return wait_until(lambda: not any(map(_lives, pids)), seconds=2.0)


def _lives(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def check(folder: Path) -> None:
    """Trials finished before are there, as they were, in whole files; note those finished now."""
    if (folder / "best.yaml").exists():
        read_best(folder / "best.yaml")
    if (folder / "best-so-far.yaml").exists():
        assert read(folder / "best-so-far.yaml").value["unconfirmed"] is True
    before_path = folder / "before.json"
    before = json.loads(before_path.read_text()) if before_path.exists() else {}
    now = finished_in(folder)
    for config, trial in before.items():
        assert now.get(config) == trial, f"{config}: {trial} became {now.get(config)}"
    before_path.write_text(json.dumps(now))


def finished_in(folder: Path) -> dict[str, Any]:
    """Configuration to what was measured, by Optuna alone."""
    found: dict[str, Any] = {}
    url = f"sqlite:///{folder / 'study.db'}"
    if (folder / "study.db").exists() and "scripted" in _names(url):
        study = optuna.load_study(study_name="scripted", storage=url)
        for trial in study.get_trials(states=(optuna.trial.TrialState.COMPLETE,)):
            found[json.dumps(trial.user_attrs["config"])] = trial.value
    return found


def _names(url: str) -> list[str]:
    try:
        return optuna.get_all_study_names(url)
    except (KeyError, optuna.exceptions.StorageInternalError):
        return []  # killed while the tables were made


def finish(folder: Path) -> None:
    """Let the search end; all its trials are there once."""
    do_in_fork(search_in, folder)
    do_in_fork(check, folder)
    done = json.loads((folder / "before.json").read_text())
    assert len(done) == TRIALS, f"{len(done)} of {TRIALS} trials"
    assert (folder / "best.yaml").exists()


def main(folder: Path, seed: int, kills: int) -> None:
    """Kill, check and continue; a search that came to its end is followed by a new one."""
    random, done, studies = Random(seed), 0, 0
    own = folder / "0"
    own.mkdir()
    while done < kills:
        if not is_killed(own, random.uniform(0.0, LONGEST_RUN_SECONDS)):
            finish(own)
            studies += 1
            own = folder / str(studies)
            own.mkdir()
            continue
        done += 1
        assert nobody_lives(own)
        do_in_fork(check, own)
    finish(own)
    print(json.dumps({"kills": done, "studies": studies + 1}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
