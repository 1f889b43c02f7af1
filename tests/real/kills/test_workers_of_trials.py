"""Workers of loaders, of a model.py and of a script: kinds and cores."""

import json

import pytest

from autotune.values.outcome import Rejected
from children import job_for as job
from children import measured, model_of, run_child, succeeded
from factories import written
from held import CORES
from tiers import late
from tuned_scripts import SCRIPTS, plan_of, report_of, run

LAMBDA = """
def build_dataset():
    dataset = plain.build_dataset()
    dataset.transform = lambda points: points
    return dataset
"""
SPAWNS = 'import multiprocessing\nmultiprocessing.set_start_method("spawn", force=True)\n'
# Says where workers are, and where the process that trains.
TELLS = """
import os
from pathlib import Path

SEEN = Path(__file__).with_name("seen")


def collate_fn(samples):
    SEEN.write_text(str(sorted(os.sched_getaffinity(0))))
    return plain.torch.utils.data.default_collate(samples)


def compute_loss(model, batch):
    Path(__file__).with_name("trains").write_text(str(sorted(os.sched_getaffinity(0))))
    return plain.compute_loss(model, batch)
"""


@pytest.mark.parametrize("warm", [late(False), True])
@pytest.mark.parametrize("method", [None, "spawn", late("forkserver")])
def test_a_trial_trains_with_the_users_kind_of_workers(method, warm, tmp_path):
    settings = {"num_workers": 1, "persistent_workers": True, "in_order": False}
    text = f"import multiprocessing\nmethod = {method!r}\n"
    text += "if method: multiprocessing.set_start_method(method, force=True)\n"
    measured(run_child(tmp_path, job(model_of(tmp_path, text), settings), warm))


def test_a_dataset_that_cannot_be_pickled_makes_an_infeasible_trial_that_says_why(tmp_path):
    settings = {"num_workers": 1, "persistent_workers": True}
    measured(run_child(tmp_path, job(model_of(tmp_path, LAMBDA), settings)))
    outcome = run_child(tmp_path, job(model_of(tmp_path, LAMBDA + SPAWNS), settings))
    assert isinstance(outcome, Rejected), outcome
    assert "the dataset cannot be sent to DataLoader workers" in outcome.detail


@pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be shared out")
def test_workers_load_on_other_cores_than_training(tmp_path):
    settings = {
        "num_workers": 1,
        "persistent_workers": True,
        "cpu_affinity": "workers_apart",
        "num_threads": 64,
    }
    measured(run_child(tmp_path, job(model_of(tmp_path, TELLS), settings)))
    trains, loads = (json.loads((tmp_path / name).read_text()) for name in ("trains", "seen"))
    assert trains
    assert loads
    assert not set(trains) & set(loads)


SCRIPT_TELLS = """
import os

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Places(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor([min(os.sched_getaffinity(0)), len(os.sched_getaffinity(0))])


def told(worker):
    print("the script's own function ran", flush=True)


def main():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Places(), batch_size=4, worker_init_fn=told, num_workers=1)
    for batch in loader:
        model(batch.float()).sum().backward()
        optimizer.step()
    print("loads on", *batch[0].tolist())
    print("trains on", min(os.sched_getaffinity(0)), len(os.sched_getaffinity(0)))
    print("threads", torch.get_num_threads())
"""
GUARD = '\n\nif __name__ == "__main__":\n    main()\n'


@pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be shared out")
def test_workers_of_a_script_load_on_other_cores(tmp_path):
    script = written(tmp_path, SCRIPT_TELLS + GUARD, "train.py")
    settings = {"num_workers": 1, "cpu_affinity": "workers_apart"}
    done = succeeded(run(tmp_path, script, num_threads=64, **settings))
    assert "the script's own function ran" in done.stdout
    told = dict(line.rsplit(" ", 2)[:2] for line in done.stdout.splitlines() if " on " in line)
    assert told["loads on"] != told["trains on"]
    applied, *_ = report_of(done)
    assert "cpu_affinity=workers_apart" in applied
    assert "num_threads=64" not in applied


def test_settings_of_the_loop_and_of_the_course_of_training_are_left_to_the_script(tmp_path):
    settings = {"num_workers": 1, "in_order": False, "pin_memory": True, "device_prefetch": True}
    done = run(tmp_path, "--allow-numerics", SCRIPTS / "plain_loop.py", **settings)
    (applied,) = report_of(done)
    assert "in_order" not in applied
    assert "device_prefetch" not in applied
    assert plan_of(done)[1:] == [
        "not applying: in_order=false (needs --map in_order=--FLAG)",
        "not applying: device_prefetch=true (needs --map device_prefetch=--FLAG)",
    ]
