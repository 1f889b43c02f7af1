"""Watching a script costs few calls in each step: at a millisecond a step, each one tells."""

import subprocess
import sys

MOST = 28
"""Calls of the project's functions in a step, with its loss recorded."""

# In a process of its own, because watching patches torch.
COUNT = """
import sys, tempfile
from pathlib import Path
from benchmarks.loss_recording import RECORDED, Training, Watching

calls = 0

def count(frame, event, _):
    global calls
    calls += event == "call" and frame.f_globals.get("__name__", "").startswith("autotune.")

with tempfile.TemporaryDirectory() as folder:
    training = Training(Watching(Path(folder)))
training.block(RECORDED, 1)  # which checks that all is seen
sys.setprofile(count)
training._train()
sys.setprofile(None)
print(calls / len(training.loader))
"""


def test_a_step_is_watched_and_its_loss_recorded_in_few_calls():
    found = subprocess.run(
        [sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, timeout=300
    )
    assert 0 < float(found.stdout) <= MOST
