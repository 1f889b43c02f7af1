"""CUDA is asked for the first time in a known place, with a known current device."""

import pytest

from autotune.configuration.job import Inspect
from autotune.configuration.script import ScriptOptions
from autotune.training import before_fork
from autotune.values.outcome import Observed
from children import printed
from factories import TINY_CONV, written
from scripted_runner import FACTS, ScriptedRunner, events_of, unstored_in

ASKS = """
import os, sys
import torch
from autotune.configuration.job import Inspect, Job
from autotune.training import inspection

def seen(wanted):
    print("asked for", wanted, "of", os.environ.get("CUDA_VISIBLE_DEVICES"))
    return "cpu"

inspection.resolve_device = seen
threads = torch.get_num_threads()
found = inspection.inspect(Job(Inspect({visible!r}), "auto", {model!r}))
print(found.machine.default_num_threads == threads, torch.get_num_threads())
"""
USES = """
import sys
from pathlib import Path
import torch
from autotune.configuration.job import Inspect, Job
from autotune.configuration.training_config import TrainingConfig
from autotune.process.common.trial_folder import TrialFolder
from autotune.training import tasks

torch.accelerator.set_device_index = lambda index: print("uses", index)
config = TrainingConfig.of({"batch_size": 8, "num_threads": 1}).as_dict()
model = sys.argv[1]
for device in ("cpu", "cuda:1"):
    tasks.prepare(Job(Inspect(), device, model, config), TrialFolder(Path(".")), 0.0)
"""


def test_a_file_that_chooses_devices_is_imported_before_any_is_asked_for(tmp_path):
    chooses = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '7'\n"
    threads = "import torch\ntorch.set_num_threads(3)\n"
    model = written(tmp_path, chooses + threads + TINY_CONV.read_text(), "model.py")
    program = ASKS.format(visible=None, model=str(model))
    assert printed(tmp_path, program) == ["asked for auto of 7", "True 3"]


def test_a_script_that_chooses_devices_is_asked_about_those(tmp_path):
    program = ASKS.format(visible="5", model=None)
    assert printed(tmp_path, program)[0] == "asked for auto of 5"


def test_the_device_that_a_script_chose_reaches_the_inspection(tmp_path):
    observed = Observed(
        "cpu", ("train.py:1#0",), "train.py:1#0", 10.0, 80.0, 0.0, {}, FACTS, visible_devices="5"
    )
    runner = ScriptedRunner(observed=observed)
    options = unstored_in(tmp_path, script=ScriptOptions(()))
    events_of(options, runner)
    (asked,) = (job.task for job in runner.jobs if isinstance(job.task, Inspect))
    assert asked == Inspect("5")


def test_code_that_names_no_device_gets_the_one_of_the_trial(tmp_path):
    assert printed(tmp_path, USES, str(TINY_CONV)) == ["uses 1"]


@pytest.mark.parametrize("device", ["/dev/nvidiactl", "/dev/dxg"])
def test_a_process_that_uses_a_driver_is_not_forked(device, monkeypatch):
    monkeypatch.setattr(before_fork, "_open_files", lambda: {3: device})
    assert before_fork.fork_obstacle() == f"an import opened {device}"


def test_a_host_in_which_a_gpu_is_open_forks_nobody(tmp_path, monkeypatch):
    device = tmp_path / "nvidia0"
    device.touch()
    monkeypatch.setattr(before_fork, "_ACCELERATORS", (str(device),))
    assert before_fork.fork_obstacle() is None or "thread" in before_fork.fork_obstacle()
    with device.open():
        assert before_fork.fork_obstacle() == f"an import opened {device}"
