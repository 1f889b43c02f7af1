"""Findings of a profile that need a GPU, and the lines that tell them."""

from dataclasses import replace

import pytest
import torch

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.console.lines import profile_lines
from autotune.searching.run.diagnosis import Diagnosis, Finding, ProfiledTraining
from autotune.training.watching import padding_in
from autotune.values.outcome import Diagnosed, Loading, Profiled, WorkloadFacts
from factories import cuda_machine

OWN = TrainingConfig.of({"batch_size": 32, "num_workers": 0})
FACTS = WorkloadFacts(1000, False, True, False, OWN.as_dict(), sample_bytes=1 << 20)
# A GPU that computes for 60 of 100 ms and waits for Python, which launches for 90 of them.
STAGES = Diagnosed(32, 0.1, None, 0.0, (Loading(0, 0.001),), 0.01, 0.09, busy_seconds=0.06)


def findings(reached=320.0, **seen):
    """What is found on a GPU in 10 seconds and 100 steps."""
    machine, space = cuda_machine(), SearchSpace({"compile_mode": (None, "reduce-overhead")})
    diagnosis = Diagnosis(STAGES, machine, OWN, 32, reached)
    watched = Profiled(seconds=10.0, steps=100, **seen)
    found = ProfiledTraining(watched, FACTS, machine, space, 8 << 30, diagnosis).findings()
    return {one.name: one for one in found}


def test_a_gpu_that_waits_for_python_is_found_idle_for_the_rest_of_a_step():
    found = findings()["launching many small operators"]
    assert found.share == pytest.approx(0.4)
    assert found.settings == ["compile_mode"]


def test_waiting_costs_no_more_than_the_gpu_is_idle():
    """Python waits in `.item()` and for data while the GPU still computes what came before."""
    spent = {"reading": {"train.py:31": 7.0}}
    found = findings(spent=spent, wait_seconds=5.0, reads={"train.py:31": 57.0})
    assert found["reading tensors in the loop"].share == pytest.approx(0.4)
    assert found["reading tensors in the loop"].evidence == "train.py:31 (57 a step)"
    assert found["waiting for data"].share == pytest.approx(0.4)
    assert (
        found["a dataset that fits into memory"].evidence
        == "its 1000 samples are 1000 MiB as tensors"
    )


def test_memory_that_grows_and_retries_are_told_first_and_last():
    found = findings(memory=(1 << 30, 2 << 30, 3 << 30), allocator_retries=3)
    first, *_, last = found.values()
    assert first.name == "memory that grows"
    assert first.evidence == "by 20.5 MiB a step, reaching the limit in 25 s"
    assert last.evidence == "it had no memory left and freed its cache 3 times"


def test_what_costs_less_than_3_percent_is_no_finding():
    spent = {"writing": {"train.py:9": 0.2}, "reading": {"train.py:8": 0.2}}
    quiet = {"spent": spent, "wait_seconds": 0.2, "padding": 0.02}
    assert findings(**quiet).keys() == {"launching many small operators"}


def test_each_finding_takes_two_lines_and_the_rest_is_counted():
    one = Finding("padding", 0.25, "in sequences", "pad less", ("batch_size",))
    found = [replace(one, share=None), one, *[replace(one, share=0.0, settings=())] * 6]
    lines = list(profile_lines(None, ["the phases are not known"], found))
    assert lines[0] == "  the phases are not known"
    assert lines[2:7] == [
        "  risk  padding: in sequences",
        "        Search batch_size; or pad less.",
        "  25 %  padding: in sequences",
        "        Search batch_size; or pad less.",
        "  note  padding: in sequences",
    ]
    assert lines[-1] == "        and 2 more, see --json"
    assert len(lines) == 2 + 12 + 1
    assert "no findings" in list(profile_lines(None, [], []))[-1]


ROWS = torch.randint(1, 1000, (4, 20))


@pytest.mark.parametrize(
    ("batch", "share"),
    [
        (ROWS * (torch.arange(20) < torch.tensor([[20], [15], [10], [5]])), 30 / 80),
        (ROWS * (torch.arange(20) >= torch.tensor([[0], [5], [10], [15]])), 30 / 80),
        ({"mask": (torch.arange(20) < torch.tensor([[20], [20], [20], [10]])).int()}, 10 / 80),
        (ROWS, 0.0),
        (torch.nn.functional.one_hot(torch.tensor([0, 3, 5]), 10), 0.0),  # zeros on both sides
        (torch.randint(0, 2, (4, 20)), 0.0),
    ],
    ids=["right", "left", "mask", "full", "one-hot", "bits"],
)
def test_padding_is_a_number_at_the_ends_of_rows_alone(batch, share):
    padded, positions = padding_in(batch)
    assert padded / positions == pytest.approx(share)


@pytest.mark.parametrize(
    "batch", [torch.rand(4, 20), torch.ones(4, 3, 8, 8).int(), torch.arange(4)]
)
def test_images_and_labels_have_no_padding(batch):
    assert padding_in(batch) is None
