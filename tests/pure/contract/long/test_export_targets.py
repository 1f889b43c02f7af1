"""The tools themselves read the exports, and end up with the settings."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from torch.utils.data import DataLoader, TensorDataset

from answers import on_cpu, on_four_gpus, on_gpu
from autotune.export import export
from factories import written
from needs import library

# The warnings of these packages are not ours.
pytestmark = pytest.mark.filterwarnings("default")

LOADED = {"num_workers": 2, "prefetch_factor": 4, "persistent_workers": True}


@pytest.fixture(autouse=True)
def _everything_as_it_was(monkeypatch):
    """These packages set environment variables and process-wide settings of torch."""
    benchmark = torch.backends.cudnn.benchmark
    with monkeypatch.context() as patch:
        before = dict(os.environ)
        yield
        for name in os.environ.keys() - before.keys():
            patch.delenv(name)
        os.environ.clear()
        os.environ.update(before)
    torch.backends.cudnn.benchmark = benchmark


def file_of(folder, best, form):
    return written(folder, export(best, form).text, f"{form}.yaml")


def read(best, form):
    loaded = yaml.safe_load(export(best, form).text)
    assert isinstance(loaded, dict)
    return loaded


def training_arguments(path):
    transformers = library("transformers")
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    (arguments,) = parser.parse_yaml_file(str(path))
    return arguments


def test_transformers_takes_every_field_at_its_value(tmp_path):
    best = on_cpu(**LOADED, amp_dtype="bfloat16", optimizer_impl="fused", compile_mode="default")
    fields = read(best, "hf")
    arguments = training_arguments(file_of(tmp_path, best, "hf"))
    taken = {name: getattr(arguments, name) for name in fields}
    assert taken | {"optim": taken["optim"].value} == fields


def test_transformers_knows_every_field_of_a_gpu():
    transformers = library("transformers")
    import dataclasses

    real = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    assert read(on_gpu(), "hf").keys() <= real


def test_accelerate_loads_the_file_and_launches_with_it(tmp_path):
    library("accelerate")
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_simple_launcher_cmd_env

    best = on_cpu(amp_dtype="bfloat16", compile_mode="max-autotune-no-cudagraphs")
    path = file_of(tmp_path, best, "accelerate")
    config = load_config_from_file(str(path))
    assert config.mixed_precision == "bf16"
    assert config.use_cpu is True
    (line,) = [x for x in path.read_text().splitlines() if x.startswith("# use: accelerate launch")]
    words = shlex.split(line.removeprefix("# use: accelerate launch ").replace("FILE", str(path)))
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(words))
    _, environ = prepare_simple_launcher_cmd_env(arguments)
    assert environ["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert environ["ACCELERATE_DYNAMO_BACKEND"] == "INDUCTOR"
    assert environ["ACCELERATE_DYNAMO_MODE"] == "max-autotune-no-cudagraphs"
    assert environ["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(("dtype", "precision"), [(None, "32-true"), ("bfloat16", "bf16-mixed")])
def test_lightning_takes_the_arguments_of_its_trainer(dtype, precision):
    lightning = library("lightning")
    sections = read(on_cpu(amp_dtype=dtype, **LOADED), "lightning")
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(**sections["trainer"], **quiet)
    assert trainer.precision == precision
    assert torch.backends.cudnn.benchmark is False
    loader = DataLoader(TensorDataset(torch.ones(8, 1)), **sections["dataloader"])
    assert (loader.batch_size, loader.num_workers, loader.prefetch_factor) == (32, 2, 4)
    assert loader.persistent_workers


def test_transformers_takes_the_settings_of_several_processes(tmp_path):
    best = on_four_gpus().model_copy(update={"machine": on_cpu().machine})
    arguments = training_arguments(file_of(tmp_path, best, "hf"))
    assert arguments.ddp_bucket_cap_mb == 50
    assert arguments.ddp_find_unused_parameters is False


def test_lightning_takes_the_arguments_of_its_strategy():
    library("lightning")
    from lightning.pytorch.strategies import DDPStrategy

    sections = read(on_four_gpus(), "lightning")
    strategy = DDPStrategy(**sections["strategy"])
    assert strategy._ddp_kwargs["bucket_cap_mb"] == 50


def test_the_tools_step_after_as_many_batches(tmp_path, monkeypatch):
    best = on_cpu(accumulation_steps=4)
    arguments = training_arguments(file_of(tmp_path, best, "hf"))
    assert arguments.gradient_accumulation_steps == 4
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    sections = read(best, "lightning")
    trainer = library("lightning").Trainer(**sections["trainer"], **quiet)
    assert trainer.accumulate_grad_batches == 4
    launch = export(best, "accelerate").use
    name, _, count = launch.split()[1].partition("=")
    monkeypatch.setenv(name, count)
    assert library("accelerate").Accelerator(cpu=True).gradient_accumulation_steps == 4


def test_every_precision_that_is_exported_is_one_of_lightnings():
    library("lightning")
    from typing import get_args

    from lightning.fabric.connector import _PRECISION_INPUT_STR

    from autotune.export.formats import _LIGHTNING_PRECISION

    assert set(_LIGHTNING_PRECISION.values()) <= set(get_args(_PRECISION_INPUT_STR))


def test_torchrun_starts_a_script_under_the_environment(tmp_path):
    program = (
        "import os, sys; print(os.environ['OMP_NUM_THREADS'], os.environ['RANK'], sys.argv[1:])"
    )
    script = written(tmp_path, program, "train.py")
    command = written(tmp_path, export(on_cpu(), "torchrun").text, "run.sh")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", command, script, "--lr", "1 2"],
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "7"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "2 0 ['--lr', '1 2']\n", done.stderr
