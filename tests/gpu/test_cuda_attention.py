"""Kernels of attention, compiled blocks and implementations of the optimizer, read back."""

import sys
from pathlib import Path

import pytest
import torch

from autotune.configuration.training_config import TrainingConfig
from autotune.training.apply_settings import Settings
from autotune.training.training_setup import apply, build_dataset
from autotune.training.workload import load_workload
from gpus import CUDA, on_cuda
from restored import process_state

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
