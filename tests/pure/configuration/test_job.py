"""Jobs as JSON."""

import pytest

from autotune.configuration import job as tasks
from autotune.configuration.training_config import TrainingConfig
from autotune.values.errors import AutotuneError

PLAN = tasks.MeasurePlan(3, 0.25, (6, 9), 0.05, 4.0)
FULL = tasks.Job(
    task=tasks.Measure(PLAN),
    device="cuda:1",
    model_path="/home/ü/model.py",
    config=TrainingConfig.of({"num_workers": 2, "amp_dtype": "bfloat16"}).as_dict(),
    seed=7,
    lr_factor=2.0,
    memory_limit_bytes=1 << 40,
    deadline_seconds=12.5,
)


@pytest.mark.parametrize(
    "task",
    [
        tasks.Inspect(),
        tasks.Measure(PLAN),
        tasks.Probe(500, (0, 1)),
        tasks.CountFlops(4, ("tf32",)),
        tasks.Gate({"num_workers": 0}),
    ],
    ids=lambda t: t.kind,
)
def test_a_job_with_any_task_comes_back_from_json_as_it_was(task):
    job = tasks.Job(task, "cpu")
    assert tasks.job_from_json(tasks.job_to_json(job)) == job


def test_a_configuration_in_a_job_keeps_the_types_of_its_values():
    config = tasks.job_from_json(tasks.job_to_json(FULL)).config
    assert config["persistent_workers"] is False
    assert type(config["num_workers"]) is int
    assert config["compile_mode"] is None


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"task": {"kind": "dance"}, "device": "cpu"}', '{"task": {"kind": "inspect"}}'],
)
def test_a_text_that_is_no_job_is_refused(text):
    with pytest.raises(AutotuneError, match="no readable job"):
        tasks.job_from_json(text)
