"""Jobs as JSON."""

import pytest

from autotune.configuration import job as tasks
from autotune.values.errors import AutotuneError

PLAN = tasks.MeasurePlan(3, 0.25, (6, 9), 0.05, 4.0)


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


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"task": {"kind": "dance"}, "device": "cpu"}', '{"task": {"kind": "inspect"}}'],
)
def test_a_text_that_is_no_job_is_refused(text):
    with pytest.raises(AutotuneError, match="no readable job"):
        tasks.job_from_json(text)
