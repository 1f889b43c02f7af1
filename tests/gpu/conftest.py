"""Fixtures of the tests of devices: `pytest -m gpu tests/gpu` runs those that need a GPU."""

import os
from functools import cache
from pathlib import Path

import pytest

from autotune.process.runner import SubprocessRunner
from autotune.training.inspection import describe_machine
from gpus import CUDA, on_cuda
from restored import process_state


@pytest.fixture(params=["cpu", on_cuda(CUDA)])
def device(request):
    """Each device on which a test runs."""
    return request.param


@pytest.fixture(scope="session")
def machine_of():
    """The machine with one of its devices, looked at once."""
    return cache(describe_machine)


@pytest.fixture(scope="module")
def runner():
    """Forks each job from one host, and compiles into the cache of all tests: both are dear."""
    with SubprocessRunner(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])) as runner:
        yield runner


@pytest.fixture
def ask(runner, tmp_path):
    """What becomes of a job in a process of its own, in which warnings are no errors."""
    return lambda job: runner.run(job, tmp_path / "trial")


@pytest.fixture(autouse=True)
def _process_state():
    with process_state():
        yield
