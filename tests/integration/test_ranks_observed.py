"""Facts that two real processes show before the first trial: formats, buffers, parameters."""

from dataclasses import replace

import pytest

from autotune.configuration.job import Inspect
from autotune.values.outcome import Inspected, describe
from children import WORKLOADS, autotune, job_for, run_child

KIND = "AUTOTUNE_TEST_KIND"


def ranks_of(folder, name, processes=2):
    job = job_for(WORKLOADS / name, task=Inspect())
    outcome = run_child(folder, replace(job, config=None, processes=processes))
    assert isinstance(outcome, Inspected), describe(outcome)
    return outcome.workload.ranks


def test_a_model_with_buffers_and_a_static_graph(tmp_path):
    found = ranks_of(tmp_path, "batch_norm.py")
    assert found.has_buffers
    assert found.graph_obstacle == ""
    assert found.unused == ()
    # The backend was asked. Some builds of torch have no hook for bfloat16 on a CPU.
    assert "float16" in found.comm_dtypes


def test_one_process_has_no_such_facts(tmp_path):
    assert ranks_of(tmp_path, "plain.py", processes=1) is None


@pytest.mark.parametrize(
    ("kind", "obstacle", "unused"),
    [
        ("unused", "", ("other.weight", "other.bias")),
        ("sometimes", "steps differ in how they use other.weight", ()),
        ("fails", "a step of 2 samples failed: ValueError (rank 1)", ()),
    ],
)
def test_parameters_that_steps_leave_out_are_named(kind, obstacle, unused, tmp_path, monkeypatch):
    monkeypatch.setenv(KIND, kind)
    found = ranks_of(tmp_path, "uses_parts.py")
    assert (found.graph_obstacle, found.unused, found.has_buffers) == (obstacle, unused, False)


def test_a_search_says_what_to_do_about_parameters_that_no_step_uses(tmp_path, monkeypatch):
    monkeypatch.setenv(KIND, "unused")
    model = WORKLOADS / "uses_parts.py"
    done = autotune(tmp_path, "search", model, "--nproc-per-node", "2", "--device", "cpu")
    assert done.returncode == 4, done.stderr
    assert "no step gives a gradient to other.weight, other.bias" in done.stderr
    assert "--baseline static_graph=true" in done.stderr
