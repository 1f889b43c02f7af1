"""Outputs of a model under CUDA graphs may be kept, in training and in evaluations."""

import sys
from pathlib import Path

import pytest
import torch

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.training.apply_settings import Settings
from autotune.training.training_setup import apply, build_dataset
from autotune.training.workload import load_workload
from children import autotune, completed
from factories import best_config
from gpus import CUDA, on_cuda
from restored import process_state

SCRIPT = Path(__file__).parents[1] / "scripts" / "keeps_outputs.py"
BASELINE = TrainingConfig.of({"batch_size": 16})
KEPT = [
    *("training: compiled True, kept True", "accumulation: kept True"),
    *("evaluation: compiled False, kept True", "evaluation with gradients: kept True"),
]


@pytest.fixture
def best(tmp_path):
    """A best.yaml that asks for CUDA graphs; on a CPU the mode compiles without them."""
    path = tmp_path / "best.yaml"
    write_best(best_config(BASELINE.replace(compile_mode="reduce-overhead"), BASELINE), path)
    return path


def test_in_a_loop_of_ones_own(device, best):
    done = completed(best.parent, [sys.executable, SCRIPT, "compiled", device, best])
    assert done.stdout.splitlines() == KEPT, done.stderr


def test_in_a_script_that_nobody_changed(device, best):
    words = ("run", best, "--allow-numerics", SCRIPT)
    done = autotune(best.parent, *words, "compiled", device)
    assert done.stdout.splitlines() == KEPT, done.stderr
    assert "compile_mode=reduce-overhead" in done.stderr.partition("not applied")[0]


PATH = Path(__file__).parents[1] / "workloads" / "attention_blocks.py"
MODES = [None, "default"]
# Those of a CPU: tests/pure/contract/test_attention_and_memory.py.
KERNELS = [
    on_cuda(CUDA, kernel) for kernel in ("flash", "efficient", "math", "cudnn", "without_cudnn")
]
# The compiler warns of what it does itself.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def stepped(device, monkeypatch, **settings):
    """A training after three steps under these settings."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, PATH.stem, None)
    workload = load_workload(PATH)
    config = TrainingConfig.of({"num_threads": torch.get_num_threads(), **settings})
    Settings(config).apply_to_process()
    setup = apply(config, workload, device, seed=0, dataset=build_dataset(workload))
    for _ in range(3):
        setup.step(iter(setup.loader))
    return setup


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("device", "kernel"), KERNELS)
def test_the_kernel_is_read_from_the_operators_that_ran(device, kernel, mode, monkeypatch):
    with process_state():
        settings = {"sdpa_backend": kernel, "amp_dtype": "bfloat16", "compile_mode": mode}
        assert stepped(device, monkeypatch, **settings).not_applied() == []


@pytest.mark.parametrize("implementation", [None, "foreach", "fused", "forloop"])
def test_each_implementation_of_the_optimizer_trains_what_is_recomputed(
    device, implementation, monkeypatch
):
    with process_state():
        settings = {"optimizer_impl": implementation, "activation_checkpointing": True}
        assert stepped(device, monkeypatch, **settings).not_applied() == []


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_each_repeated_block_is_compiled_and_may_add_up_gradients(device, mode, monkeypatch):
    """Graphs of all blocks share their memory."""
    with process_state():
        settings = {"compile_mode": mode, "compile_scope": "blocks", "accumulation_steps": 2}
        assert stepped(device, monkeypatch, **settings).not_applied() == []
