"""The numerics check in two processes: what exchanging gradients in another format changes."""

from dataclasses import replace

import pytest

from autotune.accuracy.numerics_verdict import numerics_fault
from autotune.configuration.job import Gate
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Gated, describe
from children import SETTINGS, WORKLOADS, job_for, run_child
from factories import written


def gated(folder, model, dtype, **settings):
    reference = TrainingConfig.of({**SETTINGS, **settings})
    job = job_for(
        model, {**settings, "ddp_comm_dtype": dtype}, Gate(reference.as_dict(), in_double=False)
    )
    outcome = run_child(folder, replace(job, processes=2))
    assert isinstance(outcome, Gated), describe(outcome)
    return outcome


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_usual_size_are_rounded_and_no_more(dtype, tmp_path):
    found = gated(tmp_path, WORKLOADS / "batch_norm.py", dtype)
    assert numerics_fault(found, lower_precision=True) is None
    assert found.gradient_error < 0.01
    assert found.gradient_error > 0


def test_gradients_that_vanish_in_float16_are_a_fault(tmp_path):
    source = (
        f"import sys\nsys.path.insert(0, {str(WORKLOADS)!r})\n"
        "import plain\nfrom plain import build_dataset, build_model, build_optimizer\n"
        "def compute_loss(model, batch):\n"
        "    return 1e-9 * plain.compute_loss(model, batch)\n"
    )
    found = gated(tmp_path, written(tmp_path, source, "model.py"), "float16")
    fault = numerics_fault(found, lower_precision=True)
    assert fault is not None
    assert "gradients differ" in fault.reason
