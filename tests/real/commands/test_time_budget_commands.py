"""Commands that cannot search within their time budget say so, with an exit code of their own."""

import json

from children import autotune
from factories import written

NEVER_STEPS = """\
import threading, time
import torch

def rest():
    print("waiting", flush=True)
    time.sleep(600)

def calls(depth):
    return calls(depth - 1) if depth else rest()

threading.Thread(target=lambda: time.sleep(600), daemon=True).start()
calls(4)
"""


def test_a_script_that_never_steps_is_refused_in_its_share_of_the_time(tmp_path):
    written(tmp_path, NEVER_STEPS, "train.py")
    done = autotune(tmp_path, "search", "train.py", "--time-budget", "40s", "--progress", "plain")
    assert done.returncode == 4, done.stderr
    assert "... inspecting the machine and the file, 10 s so far" in done.stderr
    told = (
        "within 15 s (it was at train.py:12, line 9 in calls, line 9 in calls, ..., line 6 in rest)"
        "; a process may take a quarter of"
    )
    assert told in done.stderr
    assert "give --time-budget 2m or more" in done.stderr


def test_a_budget_below_what_any_search_takes_is_refused_at_once(tmp_path, tiny_conv_path):
    done = autotune(tmp_path, "search", tiny_conv_path, "--time-budget", "5s")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--time-budget 5s" in done.stderr


SLOW = """\
import time
from torch import nn, randn
from torch.utils.data import TensorDataset

BASELINE = {"batch_size": 4}


def build_model():
    return nn.Linear(4, 1)


def build_dataset():
    return TensorDataset(randn(64, 4))


def compute_loss(model, batch):
    time.sleep(0.5)
    return model(batch[0]).mean()
"""


def test_a_search_that_would_try_nothing_says_so_with_an_exit_code_of_its_own(tmp_path):
    model = written(tmp_path, SLOW, "slow.py")
    words = ("search", str(model), "--time-budget", "25s", "--json", "--progress", "plain")
    done = autotune(tmp_path, *words)
    assert done.returncode == 9, done.stderr
    told = json.loads(done.stdout)
    assert (told["answer"], told["measured"]) == ("not searched enough", 0)
    assert told["time_budget"] > 25
    assert "not searched enough: a process of your settings takes" in done.stderr
    assert not (tmp_path / "studies" / "slow" / "best.yaml").exists()
