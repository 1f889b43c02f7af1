"""Code of the docs and the example studies runs as it stands."""

import importlib.util
import json
import math
import re
import shutil
import sys
from itertools import chain, islice, repeat
from pathlib import Path

import pytest
import torch

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.export import export
from children import WORKLOADS, completed, succeeded
from factories import best_config, found_here, written
from needs import library

ROOT = Path(__file__).parents[3]
MINE = TrainingConfig.of({"batch_size": 8, "num_threads": 1})
FASTER = MINE.replace(batch_size=64, amp_dtype="bfloat16", optimizer_impl="fused", num_threads=2)


def code_in(page, containing):
    """The block of Python on a page that has these words."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    (block,) = [block for block in blocks if containing in block]
    return str(block)


@pytest.fixture
def folder(tmp_path):
    """model.py and a best.yaml for it and this machine."""
    shutil.copy(WORKLOADS / "plain.py", tmp_path / "model.py")
    write_best(found_here(best_config(FASTER, MINE), tmp_path / "model.py"), tmp_path / "best.yaml")
    return tmp_path


def facts_after(folder, code, facts):
    """Return what a script of this code prints at its end; a mismatch is an error in it."""
    script = written(folder, f"{code}\nimport json\nprint()\nprint(json.dumps({facts}))\n", "t.py")
    flags = ["-W", "error:::autotune", "-W", "error::UserWarning:__main__"]
    done = succeeded(completed(folder, [sys.executable, *flags, script]))
    told = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(told, dict)
    return told


def test_the_training_loop_trains_in_a_few_lines(folder):
    code = code_in("docs/guides/model-py.md", "best.scaler(")
    assert len(code.splitlines()) <= 16
    before = (
        "import torch\nfrom model import build_dataset, build_model, compute_loss, evaluate\n"
        "device, dataset, epochs = torch.device('cpu'), build_dataset(), 1\n"
    )
    facts = (
        "{'threads': torch.get_num_threads(), 'fused': optimizer.defaults['fused'], "
        "'good': evaluate(model, device) > 0.9, 'batch': len(batch[0]), "
        "'scales': scaler.is_enabled()}"
    )
    told = facts_after(folder, before + code, facts)
    assert told == {"threads": 2, "fused": True, "good": True, "batch": 64, "scales": False}


def test_the_example_for_lightning_trains_under_the_settings(folder):
    library("lightning")
    best = found_here(best_config(FASTER, MINE), folder / "model.py")
    written(folder, export(best, "lightning").text, "settings.yaml")
    facts = (
        "{'precision': trainer.precision, 'steps': trainer.global_step, "
        "'batch': trainer.train_dataloader.batch_size, "
        "'fused': trainer.optimizers[0].defaults['fused'], "
        "'threads': __import__('torch').get_num_threads()}"
    )
    told = facts_after(folder, code_in("docs/guides/lightning.md", "LightningModule"), facts)
    expected = {"precision": "bf16-mixed", "steps": 4, "batch": 64, "fused": True, "threads": 2}
    assert told == expected


def test_the_example_for_transformers_trains_under_the_settings(folder):
    library("transformers")
    library("accelerate")
    best = found_here(best_config(FASTER, MINE), folder / "model.py")
    written(folder, export(best, "hf").text, "settings.yaml")
    facts = (
        "{'precision': trainer.accelerator.mixed_precision, 'steps': trainer.state.global_step, "
        "'fused': trainer.optimizer.optimizer.defaults['fused'], "
        "'threads': __import__('torch').get_num_threads()}"
    )
    told = facts_after(folder, code_in("docs/guides/huggingface.md", "HfArgumentParser"), facts)
    assert told == {"precision": "bf16", "steps": 4, "fused": True, "threads": 2}


STUDIES = Path(__file__).parents[3] / "studies"
NEEDS = {
    "digits_cnn": ["sklearn"],
    "photos_jpeg": ["PIL", "sklearn", "torchvision"],
    "char_transformer": [],
    "tabular_mlp": ["sklearn"],
    "chirp_gru": [],
    "pendulum_ode": [],
}


@pytest.fixture
def load(monkeypatch):
    """Import an example by path."""

    def load(name):
        for needed in NEEDS[name]:
            library(needed)
        spec = importlib.util.spec_from_file_location(name, STUDIES / name / "model.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)  # pickle looks classes up there
        spec.loader.exec_module(module)
        return module

    return load


def train(workload, model, steps):
    """Take so many optimizer steps on the CPU with the baseline's batch size; the losses."""
    build = getattr(workload, "build_optimizer", lambda p: torch.optim.AdamW(p, lr=1e-3))
    optimizer = build(model.parameters())
    loader = torch.utils.data.DataLoader(
        workload.build_dataset(), workload.BASELINE["batch_size"], shuffle=True, drop_last=True
    )
    losses = []
    for batch in islice(chain.from_iterable(repeat(loader)), steps):
        optimizer.zero_grad()
        loss = workload.compute_loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(autouse=True)
def _one_seed_and_one_thread():
    """Same numbers every time; threads that wait for a busy core make a step 10 times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", NEEDS)
def test_three_steps_give_finite_losses_and_change_every_parameter(load, name):
    workload = load(name)
    model = workload.build_model()
    before = [parameter.detach().clone() for parameter in model.parameters()]

    losses = train(workload, model, steps=3)

    assert len(losses) == 3
    assert all(math.isfinite(loss) for loss in losses)
    assert not any(map(torch.equal, before, model.parameters()))
