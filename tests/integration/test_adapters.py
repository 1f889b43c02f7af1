"""Trainings of Lightning and transformers as a model.py, and callbacks that apply a best.yaml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.training_config import TrainingConfig
from children import hurried
from factories import best_config, found_here, written
from needs import installed

pytestmark = pytest.mark.slow

LIGHTNING = """
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layers(x), y)
        self.log("train_loss", loss)
        return {"loss": loss}

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


class Data(LightningDataModule):
    def setup(self, stage):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2048, 8, generator=generator)
        self.data = TensorDataset(x, x.sum(1, keepdim=True))

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=16, shuffle=True)
"""
LIGHTNING_MODEL = """
from autotune.adapters.lightning import from_lightning
from parts import Data, Net

BASELINE = {"batch_size": 16, "optimizer_impl": "foreach"}
build_model, build_dataset, compute_loss, build_optimizer, collate_fn = from_lightning(
    Net, Data, BASELINE
)
"""
TRAINER_MODEL = """
import torch
from autotune.adapters.transformers import from_trainer
from transformers import Trainer, TrainingArguments


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}


def samples():
    generator = torch.Generator().manual_seed(0)
    xs = torch.randn(2048, 8, generator=generator)
    return [{"x": x, "labels": x.sum(0, keepdim=True)} for x in xs]


def build_trainer():
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=16, use_cpu=True, report_to="none"
    )
    return Trainer(model=Net(), args=arguments, train_dataset=samples())


BASELINE = {"batch_size": 16, "optimizer_impl": "fused"}
build_model, build_dataset, compute_loss, build_optimizer, collate_fn = from_trainer(
    build_trainer, BASELINE
)
"""
SPACE = "optimizer_impl: [foreach, fused]\nnum_threads: [1, 2]\n"
MINE = TrainingConfig.of({"batch_size": 16, "num_threads": 1})
FIT = """
import sys, warnings
import torch
from lightning.pytorch import Trainer
from autotune.adapters.lightning import ApplyBest
from parts import Data, Net

torch.set_num_threads(1)
apply = ApplyBest("best.yaml", strict="strict" in sys.argv)
given = {"accelerator": "cpu"}
if "given" in sys.argv:
    given = apply.best.arguments("lightning")["trainer"]
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer = Trainer(max_epochs=1, limit_train_batches=2, callbacks=[apply], **given, **quiet)
trainer.fit(Net(), Data())
print("threads", torch.get_num_threads())
"""
TRAIN = """
import sys
import torch
from transformers import Trainer, TrainingArguments
from autotune.adapters.transformers import ApplyBest
from model import Net, samples

torch.set_num_threads(1)
apply = ApplyBest("best.yaml", strict="strict" in sys.argv)
given = apply.best.arguments("hf") if "given" in sys.argv else {"use_cpu": True}
given |= {"optim": word[6:] for word in sys.argv if word.startswith("optim=")}
arguments = TrainingArguments("out", max_steps=2, report_to="none", save_strategy="no", **given)
Trainer(Net(), arguments, train_dataset=samples(), callbacks=[apply]).train()
print("threads", torch.get_num_threads())
"""
FIT_IMAGES = """
import sys
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader
from autotune.adapters.lightning import ApplyBest

apply = ApplyBest("best.yaml", strict="strict" in sys.argv)


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 4, 3)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1, fused="fused" in sys.argv)


net = Net()
if "channels_last" in sys.argv:
    net.to(memory_format=torch.channels_last)
if "compiled" in sys.argv:
    net = torch.compile(net, backend="eager")
if "in_place" in sys.argv:
    net.layer.compile(backend="eager")
given = apply.best.arguments("lightning")["trainer"]
data = DataLoader(torch.zeros(64, 3, 8, 8), batch_size=16)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
Trainer(max_steps=1, callbacks=[apply], **given, **quiet).fit(net, data)
print("trained")
"""


@pytest.mark.parametrize(
    ("package", "model"), [("lightning", LIGHTNING_MODEL), ("transformers", TRAINER_MODEL)]
)
def test_a_training_of_the_library_is_searched_as_a_model_py(
    tmp_path: Path, package: str, model: str
) -> None:
    installed(package)
    written(tmp_path, LIGHTNING, "parts.py")
    written(tmp_path, model, "model.py")
    written(tmp_path, SPACE, "space.yaml")
    done = hurried(tmp_path, "search", "model.py", "--space", "space.yaml", "--trials", "3")
    assert done.returncode == 0, done.stderr
    assert "did not take effect" not in done.stderr
    best = read_best(tmp_path / "studies" / tmp_path.name / "best.yaml")
    assert best.constraints.accuracy.is_measured
    assert best.evidence.searched is not None
    assert (best.evidence.searched.measured, best.evidence.searched.failed) == (2, 0)


def test_the_package_of_lightning_by_its_older_name_does_alone(tmp_path: Path) -> None:
    installed("pytorch_lightning")
    answer_in(tmp_path, MINE.replace(optimizer_impl="fused"))
    parts = LIGHTNING + LIGHTNING_MODEL.replace("from parts import Data, Net", "")
    step = "compute_loss(build_model(), next(iter(DataLoader(build_dataset(), 4)))).backward()\n"
    alone = 'import sys\nsys.modules["lightning"] = None\n'
    older = (alone + parts + step + FIT_IMAGES).replace("lightning.pytorch", "pytorch_lightning")
    written(tmp_path, older, "train.py")
    done = trained(tmp_path, "strict", "fused")
    assert "trained" in done.stdout, done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "program", "differs"),
    [
        ("lightning", FIT, "precision: bf16-mixed in the file, 32-true in the Trainer"),
        ("transformers", TRAIN, "bf16: True in the file, False in TrainingArguments"),
    ],
)
def test_the_callback_applies_the_process_and_names_what_the_trainer_has_otherwise(
    tmp_path: Path, package: str, program: str, differs: str
) -> None:
    installed(package)
    written(tmp_path, LIGHTNING, "parts.py")
    written(tmp_path, TRAINER_MODEL, "model.py")
    faster = MINE.replace(amp_dtype="bfloat16", num_threads=2)
    write_best(found_here(best_config(faster, MINE), tmp_path / "model.py"), tmp_path / "best.yaml")
    written(tmp_path, program, "train.py")
    told = trained(tmp_path)
    assert told.returncode == 0, told.stderr
    assert "threads 2" in told.stdout
    assert differs in told.stderr
    refused = trained(tmp_path, "strict")
    assert refused.returncode == 1
    assert "MismatchError" in refused.stderr
    assert differs in refused.stderr
    given = trained(tmp_path, "given", "strict", "optim=adamw_torch")
    assert given.returncode == 0, given.stderr
    assert "threads 2" in given.stdout


def test_settings_that_are_calls_in_a_module_are_read_back_from_it(tmp_path: Path) -> None:
    installed("lightning")
    found = {"channels_last": True, "compile_mode": "default", "optimizer_impl": "fused"}
    answer_in(tmp_path, MINE.replace(**found))
    written(tmp_path, FIT_IMAGES, "train.py")
    lacking = trained(tmp_path, "strict")
    assert lacking.returncode == 1
    assert "channels_last=true: Module.to(" in lacking.stderr, "what arguments() cannot carry"
    for line in (
        "channels_last: True in the file, False in the Trainer",
        "compile_mode: compiled in the file, null in the Trainer",
        "optimizer_impl: fused in the file, forloop in the Trainer",
    ):
        assert line in lacking.stderr
    for compiles in ("compiled", "in_place"):
        done = trained(tmp_path, "strict", "channels_last", "fused", compiles)
        assert "trained" in done.stdout, done.stderr
    answer_in(tmp_path, MINE)
    more = trained(tmp_path, "strict", "in_place")
    assert "compile_mode: null in the file, compiled in the Trainer" in more.stderr


def test_a_setting_that_nobody_can_read_back_is_named_and_not_refused(tmp_path: Path) -> None:
    installed("lightning")
    answer_in(tmp_path, MINE.replace(activation_checkpointing=True, optimizer_impl="fused"))
    written(tmp_path, FIT_IMAGES, "train.py")
    done = trained(tmp_path, "strict", "fused")
    assert "trained" in done.stdout, done.stderr
    assert "the Trainer cannot tell of these settings of study" in done.stderr
    assert "activation_checkpointing=true: " in done.stderr


@pytest.mark.parametrize("optim", [pytest.param("sgd", marks=pytest.mark.long), "adafactor"])
def test_the_optimizer_of_a_trainer_stays_the_users(tmp_path: Path, optim: str) -> None:
    installed("transformers")
    written(tmp_path, TRAINER_MODEL, "model.py")
    answer_in(tmp_path, MINE)
    written(tmp_path, TRAIN, "train.py")
    given = trained(tmp_path, "given", "strict", f"optim={optim}")
    assert given.returncode == 0, given.stderr
    answer_in(tmp_path, MINE.replace(optimizer_impl="fused"))
    unfused = trained(tmp_path, "given", "strict", f"optim={optim}")
    assert "optimizer_impl: fused in the file, null in TrainingArguments" in unfused.stderr


def answer_in(folder: Path, settings: TrainingConfig) -> None:
    """A best.yaml of this machine."""
    model = folder / "model.py"
    model.touch()
    write_best(found_here(best_config(settings, MINE), model), folder / "best.yaml")


def trained(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "train.py", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_baseline_that_training_arguments_do_not_have_is_refused(tmp_path: Path) -> None:
    installed("transformers")
    wrong = TRAINER_MODEL.replace(
        'BASELINE = {"batch_size": 16, ', 'BASELINE = {"accumulation_steps": 2, '
    )
    written(tmp_path, wrong, "model.py")
    done = hurried(tmp_path, "search", "model.py", "--trials", "1")
    assert done.returncode == 4
    assert "batch_size=16 (baseline: 32), accumulation_steps=1 (baseline: 2)" in done.stderr
