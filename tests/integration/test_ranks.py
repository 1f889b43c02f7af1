"""Trials of two processes that torch's launcher starts: one outcome, shared work, nobody left."""

from dataclasses import replace

from autotune.configuration.job import Probe
from autotune.values.outcome import Measured, Probed
from children import WORKLOADS, job_for, nobody_is_left, run_child
from factories import written


def of_two(model, *arguments, **options):
    return replace(job_for(model, *arguments, **options), processes=2)


def test_two_ranks_are_timed_as_one_trial(tmp_path):
    outcome = run_child(tmp_path, of_two(WORKLOADS / "plain.py"))
    assert isinstance(outcome, Measured), outcome
    found = outcome.measurement
    assert len(found.ranks) == 2
    assert found.peak_memory_bytes >= max(rank.peak_memory_bytes for rank in found.ranks)
    assert {block.samples % 16 for block in found.blocks} == {0}, "8 samples of each rank a step"
    assert nobody_is_left(tmp_path)
    names = {file.name for file in (tmp_path / "trial").iterdir()}
    assert {"outcome.json", "stderr.log", "stderr.rank1.log"} <= names
    assert "outcome.rank1.json" not in names


def test_a_probe_of_two_ranks_has_a_quality_for_each_seed(tmp_path):
    task = Probe(samples=256, seeds=(0, 1), untrained=True)
    outcome = run_child(tmp_path, of_two(WORKLOADS / "plain.py", task=task))
    assert isinstance(outcome, Probed), outcome
    assert len(outcome.qualities) == 2
    assert min(outcome.qualities) > (outcome.untrained or 0.0)


def test_two_ranks_begin_alike_draw_apart_and_exchange_gradients_once_a_step(tmp_path):
    source = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(WORKLOADS)!r})\n"
        "import torch\nimport plain\nfrom plain import build_dataset, evaluate\n"
        "def build_model():\n"
        "    model = plain.build_model()\n"
        "    print('begins', float(model.weight.sum()), flush=True)\n"
        "    return model\n"
        "def compute_loss(model, batch):\n"
        "    print('draws', float(torch.rand(1)), 'exchanges',\n"
        "          model.require_backward_grad_sync, flush=True)\n"
        "    print('first', float(batch[0].sum()), flush=True)\n"
        "    return plain.compute_loss(model, batch)\n"
        "def build_optimizer(parameters, **options):\n"
        "    optimizer = plain.build_optimizer(parameters, **options)\n"
        "    own = list(optimizer.param_groups[0]['params'])\n"
        "    optimizer.register_step_post_hook(\n"
        "        lambda *_: print('weights', float(own[0].sum()), flush=True))\n"
        "    return optimizer\n"
    )
    job = of_two(written(tmp_path, source, "model.py"), {"accumulation_steps": 2})
    assert isinstance(run_child(tmp_path, job), Measured)
    logs = [(tmp_path / "trial" / f"stdout{rank}.log").read_text() for rank in ("", ".rank1")]

    def said(word: str) -> list[list[str]]:
        return [[line for line in log.splitlines() if line.startswith(word)] for log in logs]

    begins, draws, first, weights = map(said, ("begins", "draws", "first", "weights"))
    assert begins[0] == begins[1]
    assert weights[0][:5] == weights[1][:5], "gradients are those of both"
    assert first[0][0] != first[1][0], "each has samples of its own"
    assert draws[0][0].split()[1] != draws[1][0].split()[1]
    assert [line.split()[3] for line in draws[0][:4]] == ["False", "True", "False", "True"]
