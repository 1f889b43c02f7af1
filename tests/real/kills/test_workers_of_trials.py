"""Trials whose DataLoader workers are started, placed and ordered as their settings say."""

import json
import shutil

import pytest

from autotune.values.outcome import Measured, Rejected
from children import WORKLOADS, run_child
from children import job_for as job
from factories import written
from held import CORES
from tiers import late

LAMBDA = """
import plain
from plain import build_model, compute_loss


def build_dataset():
    dataset = plain.build_dataset()
    dataset.transform = lambda points: points
    return dataset
"""
# Says where workers are, and where the process that trains.
TELLS = """
import os
from pathlib import Path

import plain
from plain import build_model

SEEN = Path(__file__).with_name("seen")


def collate_fn(samples):
    SEEN.write_text(str(sorted(os.sched_getaffinity(0))))
    return plain.torch.utils.data.default_collate(samples)


def build_dataset():
    return plain.build_dataset()


def compute_loss(model, batch):
    Path(__file__).with_name("trains").write_text(str(sorted(os.sched_getaffinity(0))))
    return plain.compute_loss(model, batch)
"""


def model(folder, text):
    shutil.copy(WORKLOADS / "plain.py", folder)
    return written(folder, text, "model.py")


@pytest.mark.parametrize(
    "settings",
    [
        late({"loader_start_method": "forkserver"}),
        {"loader_start_method": "spawn"},
        late({"in_order": False}),
    ],
    ids=lambda settings: next(iter(settings)),
)
@pytest.mark.parametrize("warm", [late(False), True])
def test_a_trial_trains_with_its_kind_of_workers(settings, warm, tmp_path):
    settings = {"num_workers": 1, "persistent_workers": True, **settings}
    outcome = run_child(tmp_path, job(WORKLOADS / "plain.py", settings), warm)
    assert isinstance(outcome, Measured), outcome


def test_a_dataset_that_cannot_be_pickled_makes_an_infeasible_trial_that_says_why(tmp_path):
    path = model(tmp_path, LAMBDA)
    forked = {"num_workers": 1, "persistent_workers": True}
    assert isinstance(run_child(tmp_path, job(path, forked)), Measured)
    outcome = run_child(tmp_path, job(path, {**forked, "loader_start_method": "spawn"}))
    assert isinstance(outcome, Rejected), outcome
    assert "the dataset cannot be sent to DataLoader workers" in outcome.detail


@pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be shared out")
@pytest.mark.parametrize("method", [None, late("spawn")])
def test_workers_load_on_other_cores_than_training(method, tmp_path):
    settings = {
        "num_workers": 1,
        "persistent_workers": True,
        "cpu_affinity": "workers_apart",
        "loader_start_method": method,
        "num_threads": 64,
    }
    outcome = run_child(tmp_path, job(model(tmp_path, TELLS), settings))
    assert isinstance(outcome, Measured), outcome
    trains, loads = (json.loads((tmp_path / name).read_text()) for name in ("trains", "seen"))
    assert trains
    assert loads
    assert not set(trains) & set(loads)
