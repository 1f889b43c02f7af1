"""Searches that are killed at random moments end as if they had not been."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from optuna.exceptions import StorageInternalError

from autotune.configuration.best_config import read_best
from autotune.study.storage import file_of
from children import WORKLOADS, nobody_is_left, start_hurried, wait_until
from covering import covers
from factories import written
from held import trials_in

KILLS = max(3, int(os.environ.get("AUTOTUNE_KILLS", "10")) // 7)
SPACE = "batch_size: [8, 16, 32]\nnum_workers: [0, 1]\n"
FLAGS = ("--space", "space.yaml", "--trials", "4", "--accuracy-samples", "256")
# A hurried search of this space takes longer than the last moment.
FIRST_SECONDS, LAST_SECONDS = 1.0, 9.0


def finished(storage):
    """Configuration to value, by Optuna alone."""
    file = file_of(storage)
    if file is None or not file.exists():
        return {}
    try:
        trials = trials_in(storage, "plain")
    except (KeyError, StorageInternalError):
        return {}  # killed while the tables were made
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    found = {str(trial.user_attrs["config"]): trial.value for trial in complete}
    assert len(found) == len(complete), "each configuration once"
    return found


def search_for(folder, storage, seconds, is_last):
    """Begin or continue the search, and kill it after so long, lastly not before a second trial."""
    search = start_hurried(folder, "search", "plain.py", "--storage", storage, *FLAGS)
    time.sleep(seconds)
    second = folder / "studies" / "plain" / "trials" / "0001"
    assert not is_last or wait_until(second.exists, seconds=60)
    search.kill()
    search.wait()


@covers("R5")
@pytest.mark.timeout(120 + 20 * KILLS)
def test_a_real_search_that_is_killed_leaves_nobody_and_loses_nothing(tmp_path):
    storage = f"sqlite:///{tmp_path / 'kept'}"
    shutil.copy(WORKLOADS / "plain.py", tmp_path)
    written(tmp_path, SPACE)
    random, before = Random(0), {}
    for number in range(1, KILLS + 1):
        seconds = random.uniform(FIRST_SECONDS, LAST_SECONDS)
        search_for(tmp_path, storage, seconds, is_last=number == KILLS)
        assert nobody_is_left(tmp_path)
        now = finished(storage)
        assert {config: now.get(config) for config in before} == before
        before = now
    assert before, "the user's own settings were told before the second trial"
    search = start_hurried(tmp_path, "search", "plain.py", "--storage", storage, *FLAGS)
    assert search.wait(timeout=100) == 0, (tmp_path / "stderr.txt").read_text()
    now = finished(storage)
    assert {config: now[config] for config in before} == before
    assert len(now) == 4
    read_best(tmp_path / "studies" / "plain" / "best.yaml")
    assert nobody_is_left(tmp_path)


TIMES = int(os.environ.get("AUTOTUNE_KILLS", "10"))


@covers("R5")
@pytest.mark.timeout(60 + 5 * TIMES)
def test_a_search_that_is_killed_at_random_moments_ends_as_if_it_had_not_been(tmp_path):
    script = Path(__file__).parent.parent.parent / "kill_points.py"
    arguments = [sys.executable, str(script), str(tmp_path), "0", str(TIMES)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["kills"] == TIMES
