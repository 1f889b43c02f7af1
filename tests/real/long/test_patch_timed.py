"""A script with the patch of its result trains as fast as the untouched one by `autotune run`."""

import re
import shutil
import subprocess
import sys

from autotune.configuration.best_config import write_best
from autotune.values.statistics import ratio_interval, ratio_of
from children import autotune, succeeded
from patched_scripts import answer
from tuned_scripts import SCRIPTS

ROUNDS = 6
WORDS = ("--epochs", "6", "--samples", "1024", "--read-seconds", "0.001")


def seconds(done):
    """Seconds of a sample, over all epochs but the first, as the script prints the rate."""
    assert done.returncode == 0, done.stderr
    return 1 / float(re.search(r"([\d.]+) samples/s", done.stderr)[1])


def test_both_agree_in_turns_and_are_faster_than_the_script_by_itself(tmp_path):
    shutil.copy(SCRIPTS / "plain_loop.py", tmp_path / "train.py")
    settings = {"num_workers": 2, "batch_size": 64, "num_threads": 1, "optimizer_impl": "fused"}
    write_best(answer(**settings), tmp_path / "best.yaml")
    patch = succeeded(autotune(tmp_path, "export", "best.yaml", "--format", "patch")).stdout
    patched = tmp_path / "patched"
    patched.mkdir()
    shutil.copy(tmp_path / "train.py", patched)
    apply = ["git", "apply", "--unsafe-paths", "-"]
    subprocess.run(apply, cwd=patched, input=patch, text=True, check=True)

    def by_itself(folder):
        command = [sys.executable, "train.py", *WORDS]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    def under_run():
        words = ("--allow-numerics", "best.yaml", "train.py", *WORDS)
        done = autotune(tmp_path, "run", *words)
        assert "optimizer_impl=fused" in done.stderr.splitlines()[-1], done.stderr
        return done

    rounds = []
    for number in range(ROUNDS):
        turns = [lambda: by_itself(patched), under_run]
        found = [seconds(turn()) for turn in turns[:: 1 - 2 * (number % 2)]]
        rounds.append(tuple(found[:: 1 - 2 * (number % 2)]))
    low, high = ratio_interval(rounds)
    assert low <= 1 <= high or 0.95 <= ratio_of(rounds) <= 1.05, rounds
    own = seconds(by_itself(tmp_path))
    assert own > 1.4 * max(max(pair) for pair in rounds), "the settings make a difference"
