"""Workers of loaders, of a model.py and of a script, and their kinds."""

import pytest

from autotune.values.outcome import Rejected
from children import job_for as job
from children import measured, model_of, run_child
from tiers import late
from tuned_scripts import SCRIPTS, plan_of, report_of, run

LAMBDA = """
def build_dataset():
    dataset = plain.build_dataset()
    dataset.transform = lambda points: points
    return dataset
"""
SPAWNS = 'import multiprocessing\nmultiprocessing.set_start_method("spawn", force=True)\n'


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


def test_settings_of_the_loop_and_of_the_course_of_training_are_left_to_the_script(tmp_path):
    settings = {"num_workers": 1, "in_order": False, "pin_memory": True}
    done = run(tmp_path, "--allow-numerics", SCRIPTS / "plain_loop.py", **settings)
    (applied,) = report_of(done)
    assert "in_order" not in applied
    assert plan_of(done)[1:] == [
        "not applying: in_order=false (needs --map in_order=--FLAG)",
    ]
