"""Faults that are planted in the loop of a script are found, and none where there are none."""

from pathlib import Path

import pytest

from autotune.configuration.job import Job, Observe
from autotune.configuration.script import Script
from autotune.configuration.search_space import SearchSpace
from autotune.searching.run.diagnosis import ProfiledTraining
from autotune.values.outcome import Observed
from children import ended_as
from factories import cpu_machine

PLANTED = Path(__file__).parents[2] / "scripts" / "planted.py"


@pytest.fixture
def findings(runner, tmp_path, monkeypatch):
    """What is found in the script with a fault, watched for a moment."""
    monkeypatch.chdir(tmp_path)

    def of(fault):
        job = Job(
            Observe(watch_seconds=1.5),
            device="auto",
            model_path=str(PLANTED),
            script=Script((fault,)),
        )
        seen = ended_as(Observed, runner.run(job, tmp_path / "trial"))
        space = SearchSpace({"num_workers": (0, 2), "compile_mode": (None, "default")})
        training = ProfiledTraining(seen.profiled, seen.workload, cpu_machine(), space, 8 << 30)
        return training.findings()

    return of


@pytest.mark.parametrize(
    ("fault", "name", "line"),
    [
        ("slow data", "waiting for data", "# decodes"),
        ("slow data", "a dataset that fits into memory", ""),
        ("small operators", "launching many small operators", ""),
        ("uneven", "uneven steps", "@ model[0].weight"),
        ("reading", "reading tensors in the loop", ".norm().item()"),
        ("writing", "checkpoints and logging in the loop", "torch.save("),
        ("printing", "checkpoints and logging in the loop", "file=log"),
        ("padding", "padding", ""),
        ("recompilation", "recompilation", ""),
        ("growing", "memory that grows", ""),
    ],
)
def test_a_planted_fault_is_found_with_its_line(fault, name, line, findings):
    found = {one.name: one for one in findings(fault)}
    assert name in found
    if line:
        lines = PLANTED.read_text().splitlines()
        (number,) = (n for n, text in enumerate(lines, start=1) if line in text)
        assert f"planted.py:{number}" in found[name].evidence
    if fault == "slow data":
        assert next(iter(found)) == "waiting for data", "the costliest comes first"
        assert found["waiting for data"].settings == ["num_workers"], "as far as this space varies"


@pytest.mark.parametrize("kind", ["plain", "images", "sentences", "compiled"])
def test_nothing_is_found_in_a_clean_loop(kind, findings):
    assert findings(f"clean {kind}") == []
