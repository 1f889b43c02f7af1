"""The stages of a script follow from the seconds of its own steps, here of a clock that we move."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from autotune.scripting.observation import timed_steps
from autotune.training.batches import Batches
from autotune.training.profiling import copy_seconds, stages_of
from autotune.training.timing import Timer, drive

CPU = torch.device("cpu")


@dataclass
class Script:
    """A loop that waits for data, computes and updates, in seconds of its own clock."""

    waits: float = 0.1
    computes: float = 0.5
    updates: float = 0.05
    opens_epoch: Callable[[int], bool] = lambda step: False
    now: float = 0.0
    steps: int = 0

    def __post_init__(self):
        self.batches = Batches((), self.clock, lambda: None)
        self.optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)

    def clock(self):
        return self.now

    def step(self):
        self.steps += 1
        if self.opens_epoch(self.steps):
            self.now += 10 * self.waits
            self.batches.boundary_seconds.append(10 * self.waits)
        else:
            self.now += self.waits
            self.batches.wait_seconds += self.waits
        self.now += self.computes
        self.optimizer.step()
        self.now += self.updates


def loader(workers=0, dataset=None):
    data = dataset or TensorDataset(torch.zeros(64, 1))
    return DataLoader(data, batch_size=4, num_workers=workers)


def timed(script, feeds, batches_per_step=1):
    timer = Timer(script.batches)
    return drive(stages_of(timer, CPU, feeds, 4, batches_per_step), script.step)


def test_waiting_is_loading_where_the_script_loads_itself():
    found = timed(Script(), loader())
    assert [(one.num_workers, one.seconds) for one in found.loading] == [(0, pytest.approx(0.1))]
    assert found.compute_seconds == pytest.approx(0.55)
    assert found.optimizer_seconds == pytest.approx(0.05)
    assert (found.transfer_seconds, found.launch_seconds, found.busy_seconds) == (0.0, None, None)
    assert found.batch_size == 4


def test_without_a_loader_computing_and_updating_are_told():
    found = timed(Script(waits=0.0), None)
    assert found.loading == ()
    assert found.compute_seconds == pytest.approx(0.55)
    assert found.optimizer_seconds == pytest.approx(0.05)


def test_all_are_seconds_of_a_batch_where_steps_accumulate():
    found = timed(Script(), loader(), batches_per_step=5)
    assert found.compute_seconds == pytest.approx(0.11)
    assert found.loading[0].seconds == pytest.approx(0.02)
    assert found.optimizer_seconds == pytest.approx(0.01)


def test_a_step_that_opens_an_epoch_does_not_count():
    found = timed(Script(opens_epoch=lambda step: step % 3 == 0), loader())
    assert found.compute_seconds == pytest.approx(0.55)
    assert found.loading[0].seconds == pytest.approx(0.1)


def test_slow_steps_are_few():
    script = Script(computes=60.0)
    assert timed(script, loader()) is not None
    assert script.steps == 4


def test_what_workers_load_is_loaded_once_more_in_this_process():
    seen = []

    class Counts(Dataset[object]):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            seen.append(index)
            return torch.zeros(1)

    threads = torch.get_num_threads()
    found = timed(Script(waits=0.0), loader(2, Counts()))
    assert found.loading[0].num_workers == 0
    assert found.loading[0].seconds > 0
    assert len(seen) == 4 * 4
    assert torch.get_num_threads() == threads


def test_a_dataset_that_only_workers_can_read_leaves_the_stages_unknown():
    class Refuses(Dataset[object]):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            raise RuntimeError("not in this process")

    assert timed(Script(), loader(2, Refuses())) is None


def test_copies_to_the_device_are_told_from_kernels():
    def event(key, start, end):
        return SimpleNamespace(key=key, time_range=SimpleNamespace(start=start, end=end))

    events = [
        event("Memcpy HtoD (Pinned -> Device)", 0, 2e6),
        event("gemm", 2e6, 9e6),
        event("Memcpy DtoH (Device -> Pageable)", 9e6, 10e6),
    ]
    assert copy_seconds(events, steps=2) == pytest.approx(1.0)


@pytest.mark.parametrize(("seconds", "taken"), [(0.1, 10), (2.0, 3), (1.2, 4), (60.0, 3)])
def test_the_speed_of_long_steps_is_measured_over_few(seconds, taken):
    assert timed_steps(seconds) == taken
