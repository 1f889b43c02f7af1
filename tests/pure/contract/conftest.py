"""The tiny workload, loaded; and the state of this process, restored after each test."""

import sys
from pathlib import Path

import pytest
from torch import distributed

from autotune.training.ranks import World
from autotune.training.workload import load_workload
from restored import process_state

WORKLOADS = Path(__file__).parents[2] / "workloads"


@pytest.fixture
def workload(tiny_conv_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, tiny_conv_path.stem, None)
    return load_workload(tiny_conv_path)


@pytest.fixture
def blocks_workload(monkeypatch):
    """A workload of repeated blocks with attention, which can be recomputed."""
    path = WORKLOADS / "attention_blocks.py"
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, path.stem, None)
    return load_workload(path)


@pytest.fixture
def one_of_one():
    """A world of this process alone, with a process group as several have it."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield World(control=distributed.group.WORLD)
    distributed.destroy_process_group()


@pytest.fixture(autouse=True)
def _process_state():
    with process_state():
        yield
