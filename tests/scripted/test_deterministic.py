"""Searches that are held to torch's deterministic mode, and runs of what they answer."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from autotune.comparison.compare import ComparisonOptions, Side, compare
from autotune.configuration.best_config import read_best
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import WorkloadOptions
from autotune.searching.run.events import Answered
from autotune.values.errors import UsageError
from autotune.values.outcome import Inspected, NotApplied, Rejected
from children import autotune, ended_as, hurried, job_for, run_child, succeeded
from factories import best_config, cpu_machine, cuda_machine, written
from scripted_runner import FACTS, ScriptedRunner, at, batch_of, events_of, unstored_in

SPACE = """
batch_size: [8, 16]
num_workers: [0, 2]
in_order: [true, false]
cudnn_benchmark: [false, true]
compile_mode: [null, default, max-autotune]
deterministic: [false, true]
"""
# torch has no deterministic kernel for put_.
USES_PUT = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def build_model():
    assert {assertion}
    return nn.Linear(4, 2)

def build_dataset():
    return TensorDataset(torch.randn(256, 4))

def compute_loss(model, batch):
    out = model(batch[0])
    if {where}:
        torch.zeros(4).put_(torch.tensor([0]), torch.ones(1))
    return out.square().mean()
"""
NO_KERNEL = "put_ does not have a deterministic implementation"
ON = "torch.are_deterministic_algorithms_enabled()"
SCRIPT = """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(512, 4)), batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range({epochs}):
    for (batch,) in loader:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
print(torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG"))
"""


def model_in(folder, where="False", assertion="True"):
    return written(folder, USES_PUT.format(where=where, assertion=assertion), "model.py")


def on_gpu(**baseline):
    machine = replace(cuda_machine(), compile_obstacle="")
    return Inspected(machine, replace(FACTS, baseline={"batch_size": 8, **baseline}))


def test_every_process_of_a_search_is_in_the_mode_and_best_yaml_says_so(tmp_path):
    runner = ScriptedRunner(lambda config, phase: at(100 + batch_of(config)))
    events = events_of(unstored_in(tmp_path, deterministic=True), runner)
    configs = [TrainingConfig.of(job.config) for job in runner.jobs if job.config]
    assert configs
    assert all(config["deterministic"] for config in configs)
    assert isinstance(events[-1], Answered)
    best = read_best(tmp_path / "best.yaml")
    assert best.config["deterministic"] is True
    assert best.evidence.baseline.config["deterministic"] is True
    assert not best.keeps_baseline


def test_without_the_flag_no_process_is(tmp_path):
    events_of(unstored_in(tmp_path), runner := ScriptedRunner())
    assert not any(job.config["deterministic"] for job in runner.jobs if job.config)


def test_values_with_which_runs_differ_are_out_of_the_space_with_the_reason(tmp_path):
    runner = ScriptedRunner(inspected=on_gpu())
    events = events_of(unstored_in(tmp_path, SPACE, deterministic=True, trials=40), runner)
    configs = [TrainingConfig.of(job.config) for job in runner.jobs if job.config]
    assert {config["cudnn_benchmark"] for config in configs} == {False}
    assert {config["in_order"] for config in configs} == {True}
    assert {config["compile_mode"] for config in configs} <= {None, "default"}
    told = str(events[0])
    for text in (
        "cudnn_benchmark=true dropped: not deterministic: cuDNN picks an algorithm by timing",
        "in_order=false dropped: not deterministic: the order of the batches depends on",
        "compile_mode=max-autotune dropped: not deterministic: the compiler picks kernels",
        "deterministic=false dropped: not deterministic: the mode is off",
    ):
        assert text in told


def test_memory_is_left_unfilled_only_where_the_mode_is_on(tmp_path):
    space = "batch_size: [8, 16]\nfill_uninitialized_memory: [null, false]\n"
    told = {}
    for is_on in (False, True):
        runner = ScriptedRunner()
        events = events_of(unstored_in(tmp_path, space, deterministic=is_on), runner)
        told[is_on] = str(events[0])
        values = {job.config["fill_uninitialized_memory"] for job in runner.jobs if job.config}
        assert values == ({None, False} if is_on else {None})
    why = "fill_uninitialized_memory stays null: torch's deterministic mode is off or fills nothing"
    assert why in told[False]
    assert why not in told[True]


def test_own_settings_that_cannot_keep_the_mode_are_all_named_before_anything_runs(tmp_path):
    own = {"cudnn_benchmark": True, "num_workers": 2, "in_order": False}
    runner = ScriptedRunner(inspected=on_gpu(**own))
    with pytest.raises(UsageError) as caught:
        events_of(unstored_in(tmp_path, deterministic=True), runner)
    first, second = str(caught.value).splitlines()
    assert first.startswith("--deterministic: your setting in_order=false cannot keep it")
    assert second.endswith("Change it, or add --baseline cudnn_benchmark=false.")
    assert {asked.phase for asked in runner.asked} == {"inspection"}


def test_another_mode_in_the_baseline_contradicts_the_flag(tmp_path):
    options = unstored_in(tmp_path, deterministic=True, baseline={"deterministic": False})
    with pytest.raises(UsageError, match="--baseline deterministic=false contradicts"):
        events_of(options, ScriptedRunner())


def test_the_mode_is_read_back_and_no_kernel_is_the_outcome_in_torchs_words(tmp_path):
    model = model_in(tmp_path, where="True", assertion=ON)
    outcome = ended_as(Rejected, run_child(tmp_path, job_for(model, {"deterministic": True})))
    assert outcome.detail.startswith(NO_KERNEL)
    assert not outcome.detail.endswith(".")
    late = f"{ON} and torch.use_deterministic_algorithms(False)"
    outcome = run_child(tmp_path, job_for(model_in(tmp_path, where=late), {"deterministic": True}))
    assert outcome == NotApplied("deterministic", "true", "false")


@pytest.mark.long
def test_a_search_refuses_what_has_no_kernel_and_answers_in_the_mode(tmp_path):
    model = model_in(tmp_path, where="batch[0].shape[0] == 32", assertion="True")
    space = written(tmp_path, "batch_size: [16, 32, 64]\n")
    flags = ("--space", space, "--deterministic", "--trials", "4", "--json", "--study", "kept")
    flags += ("--baseline", "batch_size=16", "--accuracy-samples", "128")
    done = succeeded(hurried(tmp_path, "search", model, *flags))
    assert NO_KERNEL in done.stderr
    best = json.loads(done.stdout)["best"]
    assert best["config"]["deterministic"] is True
    assert best["config"]["batch_size"] != 32
    code = (
        "import autotune, torch; best = autotune.load('studies/kept/best.yaml')\n"
        f"best.apply_to_process(); assert {ON}; print(best.explain())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "torch's deterministic mode, when measured" in told.stdout


@pytest.mark.long
def test_a_script_is_searched_and_run_in_the_mode(tmp_path):
    written(tmp_path, SCRIPT.format(epochs=100000), "train.py")
    space = written(tmp_path, "num_workers: [0, 1]\n")
    flags = ("--space", space, "--deterministic", "--trials", "2")
    succeeded(hurried(tmp_path, "search", "train.py", *flags))
    assert read_best(tmp_path / "studies/train/best.yaml").config["deterministic"] is True
    written(tmp_path, SCRIPT.format(epochs=1), "train.py")
    told = autotune(tmp_path, "run", "studies/train/best.yaml", "train.py")
    assert told.stdout.strip() == "True :4096:8", told.stderr
    assert "deterministic=true" in told.stderr


def test_a_comparison_runs_your_settings_in_the_mode_of_the_answer(tmp_path):
    own = TrainingConfig.of({**FACTS.baseline, "deterministic": True})
    best = best_config(own.replace(batch_size=64), own).training_config
    model = written(tmp_path, "# trains\n", "model.py")
    runner = ScriptedRunner(inspected=Inspected(cpu_machine(), FACTS))
    sides = Side("best.yaml", best), Side("your settings", None)
    options = ComparisonOptions(WorkloadOptions(model), *sides, 6)
    list(compare(options, runner, tmp_path))
    assert {job.config["deterministic"] for job in runner.jobs if job.config} == {True}
