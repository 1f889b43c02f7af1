"""Cores are shared out by the machine's own layout, and threads and workers keep to theirs."""

import os
import pickle
import threading
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import process
from autotune.knobs.process import AFFINITY, Core, OnCores, cores_of, parted
from autotune.production import Best
from autotune.training.apply_settings import Settings
from autotune.training.disturbance import own_cores
from factories import best_config, cpu_machine
from held import CORES
from restored import process_state

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be shared out")
ROWS = TensorDataset(torch.arange(8))
# Two sockets, each with a node of two physical cores of two hardware threads.
SERVER = tuple(Core(n // 2 % 2, n // 2 % 2, n % 2, n) for n in range(8))


@pytest.fixture(autouse=True)
def _process_state():
    with process_state():
        yield


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(
        process, "cores_of", lambda numbers: tuple(sorted(SERVER[n] for n in numbers))
    )


def write_topology(root):
    """Cores 0 to 3 on two nodes; 0 and 2 are hardware threads of one physical core."""
    system = root / "sys/devices/system"
    for number, (package, core) in enumerate([(0, 0), (1, 0), (0, 0), (1, 1)]):
        folder = system / f"cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder.parent / f"node{package}").symlink_to(system / f"node/node{package}")
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")


def test_neighbours_are_read_from_the_kernels_list(tmp_path):
    write_topology(tmp_path)
    found = cores_of(range(4), tmp_path)
    assert [core.number for core in found] == [0, 2, 1, 3]
    assert [core.node for core in found] == [0, 0, 1, 1]
    assert len({core.physical for core in found}) == 3
    found = cores_of([5, 4], tmp_path / "none")
    assert [(core.number, core.node) for core in found] == [(4, 0), (5, 0)], "without a list"
    assert len({core.physical for core in found}) == 2


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("value", "threads", "compute", "workers"),
    [
        ("compact", 8, {0, 1, 4, 5}, {0, 1, 4, 5}),
        ("spread", 8, {0, 1, 2, 3}, {0, 1, 2, 3}),
        ("workers_apart", 8, {0, 1, 4, 5}, {2, 3, 6, 7}),
        ("workers_apart", 1, {0, 4}, {1, 2, 3, 5, 6, 7}),
        ("workers_apart", 3, {0, 1, 2, 4, 5, 6}, {3, 7}),
        ("workers_apart", 4, {0, 1, 4, 5}, {2, 3, 6, 7}),
        (None, 8, set(range(8)), set(range(8))),
    ],
)
def test_each_value_gives_whole_nodes_and_cores_first(value, threads, compute, workers):
    parts = parted(value, threads, range(8))
    assert parts == process.Parts(frozenset(compute), frozenset(workers))


@pytest.mark.usefixtures("server")
def test_only_cores_that_may_be_used_are_given():
    assert parted("compact", 8, [1, 2, 3, 6]).compute == {2, 3, 6}
    assert parted("workers_apart", 8, [0, 1]) == process.Parts(frozenset({0}), frozenset({1}))


@pytest.mark.usefixtures("server")
def test_a_value_that_would_change_nothing_is_refused_with_its_reason(monkeypatch):
    machine = cpu_machine(4)
    monkeypatch.setattr(process, "_mask", lambda: frozenset({0, 1}))
    assert AFFINITY.obstacle("compact", machine) == "the usable cores are on one NUMA node"
    assert AFFINITY.obstacle("spread", machine) == ("no usable core has a second hardware thread")
    assert AFFINITY.obstacle("workers_apart", machine) is None
    alone = "one physical core cannot be divided between training and workers"
    assert AFFINITY.obstacle("workers_apart", cpu_machine(1)) == alone
    monkeypatch.setattr(process, "_mask", lambda: frozenset({0, 4}))
    assert AFFINITY.obstacle("workers_apart", machine) == alone
    monkeypatch.setattr(process, "_mask", lambda: frozenset(range(8)))
    assert AFFINITY.suggestions(machine) == (None, "compact", "spread", "workers_apart")


def test_threads_that_run_already_move_and_the_default_number_follows():
    inside, leave = threading.Event(), threading.Event()
    seen = []

    def stays():
        inside.set()
        leave.wait()
        seen.append(os.sched_getaffinity(0))

    os.sched_setaffinity(0, CORES)
    thread = threading.Thread(target=stays)
    thread.start()
    inside.wait()
    torch.set_num_threads(2)
    Settings(TrainingConfig.of({"cpu_affinity": "workers_apart"})).apply_to_process()
    leave.set()
    thread.join()
    assert os.sched_getaffinity(0) == {CORES[0]}
    assert seen == [{CORES[0]}]
    assert torch.get_num_threads() == 1


def test_a_number_of_threads_is_at_most_the_cores_left():
    os.sched_setaffinity(0, CORES)
    config = TrainingConfig.of({"cpu_affinity": "workers_apart", "num_threads": 2})
    settings = Settings(config)
    settings.apply_to_process()
    assert settings.config == Settings(config).config == config.replace(num_threads=1)
    assert torch.get_num_threads() == 1


def test_null_gives_the_cores_back_and_noise_is_looked_for_on_all_of_them():
    os.sched_setaffinity(0, CORES)
    Settings(TrainingConfig.of({"cpu_affinity": "workers_apart"})).apply_to_process()
    assert own_cores() == set(CORES)
    assert AFFINITY.read_process() == "workers_apart"
    Settings(TrainingConfig.of({})).apply_to_process()
    assert os.sched_getaffinity(0) == set(CORES)
    assert AFFINITY.read_process() is None


def test_a_mask_that_the_user_sets_later_is_kept_to():
    os.sched_setaffinity(0, CORES)
    Settings(TrainingConfig.of({"cpu_affinity": "workers_apart"})).apply_to_process()
    os.sched_setaffinity(0, {CORES[1]})
    assert AFFINITY.allowed() == {CORES[1]}
    assert AFFINITY.read_process() is None


class _Read:
    """As much of a training loop as the knob reads."""

    def __init__(self, loader):
        self.loader = loader


def moves_back(_):
    os.sched_setaffinity(0, CORES)


def test_live_workers_are_on_the_other_cores_and_a_function_of_the_users_still_runs():
    os.sched_setaffinity(0, CORES)
    config = TrainingConfig.of(
        {"cpu_affinity": "workers_apart", "num_workers": 1, "persistent_workers": True}
    )
    best = Best(best_config(config, TrainingConfig.of({})))
    Settings(config).apply_to_process()
    told = torch.zeros(1, dtype=torch.int64)
    told.share_memory_()

    def tells(number):
        told[0] = sum(os.sched_getaffinity(0)) + 100 * (number + 1)

    loader = best.loader(ROWS, batch_size=2, worker_init_fn=tells)
    next(iter(loader))
    assert int(told) == 100 + CORES[1]
    assert AFFINITY.read_back(_Read(loader)) == "workers_apart"


def test_a_worker_that_leaves_its_cores_is_noticed():
    os.sched_setaffinity(0, CORES)
    config = TrainingConfig.of(
        {"cpu_affinity": "workers_apart", "num_workers": 1, "persistent_workers": True}
    )
    settings = Settings(config)
    settings.apply_to_process()
    kwargs = {**settings.loader_kwargs(), "worker_init_fn": settings.worker_init_fn(moves_back)}
    loader = DataLoader(ROWS, **kwargs)
    next(iter(loader))
    assert AFFINITY.read_back(_Read(loader)) is None


def test_a_spawned_worker_can_be_told_its_cores():
    init = OnCores(frozenset({0, 1}), moves_back)
    assert pickle.loads(pickle.dumps(init)) == init
    assert replace(init, own=None) == OnCores(frozenset({0, 1}))
