"""Knobs of several processes, in force and read back in two real ones that train together."""

from dataclasses import replace

import pytest

from autotune.configuration.job import Probe
from autotune.values.outcome import Measured, NotApplied, Probed, describe
from children import WORKLOADS, job_for, nobody_is_left, run_child
from factories import written

FSDP = {"sharding": "fsdp"}
EXCHANGE = {
    "ddp_bucket_mb": 1,
    "gradient_as_bucket_view": True,
    "static_graph": True,
    "broadcast_buffers": False,
    "ddp_comm_dtype": "float16",
}
STATIC = {"static_graph": True, "accumulation_steps": 2}
KEPT = {**FSDP, "reshard_after_forward": False, "accumulation_steps": 2}
SETTINGS = [EXCHANGE, STATIC, FSDP, KEPT]


def of_two(model, settings, **options):
    return replace(job_for(model, settings, **options), processes=2)


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_of_the_exchange_are_measured_and_read_back(settings, tmp_path):
    outcome = run_child(tmp_path, of_two(WORKLOADS / "batch_norm.py", settings))
    assert isinstance(outcome, Measured), describe(outcome)
    assert nobody_is_left(tmp_path)


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_probe_evaluates_the_whole_model_on_rank_0(settings, tmp_path):
    task = Probe(samples=256, seeds=(0,), untrained=True)
    outcome = run_child(tmp_path, of_two(WORKLOADS / "plain.py", settings, task=task))
    assert isinstance(outcome, Probed), describe(outcome)
    assert outcome.qualities[0] > 0.9 > (outcome.untrained or 0.0)


def test_a_setting_of_several_processes_is_not_in_force_in_one(tmp_path):
    outcome = run_child(tmp_path, job_for(WORKLOADS / "plain.py", {"ddp_bucket_mb": 1}))
    assert outcome == NotApplied("ddp_bucket_mb", "1", "null")


def test_two_processes_train_alike_in_ddp_and_sharded(tmp_path):
    source = (
        f"import sys\nsys.path.insert(0, {str(WORKLOADS)!r})\n"
        "import plain\nfrom plain import build_dataset, build_model, build_optimizer\n"
        "def compute_loss(model, batch):\n"
        "    loss = plain.compute_loss(model, batch)\n"
        "    print('loss', f'{float(loss):.5f}', flush=True)\n"
        "    return loss\n"
    )
    model = written(tmp_path, source, "model.py")
    losses = []
    for name, settings in (("ddp", {}), ("fsdp", FSDP)):
        place = tmp_path / name
        place.mkdir()
        assert isinstance(run_child(place, of_two(model, settings)), Measured)
        log = (place / "trial" / "stdout.log").read_text()
        losses.append([line for line in log.splitlines() if line.startswith("loss")][:6])
    assert losses[0] == losses[1]
    assert len(losses[0]) == 6
