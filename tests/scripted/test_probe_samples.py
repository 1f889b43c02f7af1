"""Every configuration trains its probe on equally many samples, whatever its batch size."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from autotune.configuration.job import Job, Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.process.common.trial_folder import TrialFolder
from autotune.training.batches import EmptyEpochError
from autotune.training.quality import ProbeData, probe
from autotune.training.tasks import LoadedJob
from autotune.training.tasks import probe as probe_seeds
from autotune.training.training_setup import apply
from autotune.training.workload import Workload, default_optimizer


class Numbered(Dataset):
    """Samples that say which they are."""

    def __init__(self, count):
        self._count = count

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if index >= self._count:
            raise IndexError
        return torch.full((4,), float(index))


class Stream(IterableDataset):
    def __init__(self, count):
        self._count = count

    def __iter__(self):
        return (Numbered(self._count)[index] for index in range(self._count))


class Noting(nn.Module):
    """Notes what it is trained on; cannot train on a single sample."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.batches = []

    def forward(self, batch):
        self.batches.append(batch[:, 0].tolist())
        return self.layers(batch)


def workload_of(dataset, **changes):
    parts = {
        "path": Path("model.py"),
        "build_model": Noting,
        "build_dataset": lambda: dataset,
        "compute_loss": lambda model, batch: model(batch).square().mean(),
        "build_optimizer": default_optimizer,
        "evaluate": lambda model, device: 1.0,
        "collate_fn": None,
        "baseline": {},
    }
    return Workload(**{**parts, **changes})


def prepared(dataset, **settings):
    workload = workload_of(dataset)
    return apply(TrainingConfig.of({"num_threads": 1, **settings}), workload, "cpu", 0, dataset)


def trained_on(dataset, samples, **settings):
    """The batches of a probe, each a list of its samples' numbers."""
    setup = prepared(dataset, **settings)
    probe(setup, ProbeData(dataset, None), Probe(samples, (0,)), lambda phase: None)
    return setup.model.batches


def sizes_of(batches):
    return [len(batch) for batch in batches]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Numbered(230), Stream(230)], ids=["map", "stream"])
def test_the_number_of_samples_is_the_same_whatever_the_batch_size(dataset, workers):
    sizes = {
        size: sizes_of(trained_on(dataset, 100, batch_size=size, num_workers=workers))
        for size in (8, 24, 64, 128)
    }
    assert sizes == {8: [8] * 12 + [4], 24: [24] * 4 + [4], 64: [64, 36], 128: [100]}


def test_no_batch_is_added_where_whole_batches_come_out_even():
    assert sizes_of(trained_on(Numbered(80), 128, batch_size=64)) == [64, 64]
    assert sizes_of(trained_on(Stream(80), 128, batch_size=8)) == [8] * 16


@pytest.mark.parametrize("dataset", [Numbered(230), Stream(230)], ids=["map", "stream"])
@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(2, [2] * 49 + [3]), (20, [20] * 4 + [21]), (100, [101])]
)
def test_a_single_sample_that_is_left_joins_the_batch_before(batch_size, sizes, dataset):
    assert sizes_of(trained_on(dataset, 101, batch_size=batch_size)) == sizes


def test_the_last_batch_is_drawn_at_random_too():
    (last,) = trained_on(Numbered(1000), 50, batch_size=64)
    assert len(set(last)) == 50
    assert sorted(last) != list(range(50))
    assert trained_on(Numbered(1000), 50, batch_size=64) == [last], "the seed decides"


def test_a_dataset_that_is_as_large_as_a_batch_gives_a_last_one_that_is_larger():
    (only,) = trained_on(Numbered(10), 11, batch_size=10)
    assert set(Counter(only)) == set(range(10))


@pytest.mark.parametrize(("batch_size", "samples"), [(8, 100), (200, 100)])
def test_a_stream_that_fills_no_batch_is_an_error_and_no_endless_loop(batch_size, samples):
    with pytest.raises(EmptyEpochError, match="no full batch"):
        trained_on(Stream(5), samples, batch_size=batch_size)


def test_nothing_is_compiled_for_the_last_batch_alone():
    setup, compiled_for = prepared(Numbered(230), batch_size=64), []

    def compiled(batch):
        compiled_for.append(len(batch))
        return setup.model.forward(batch)

    setup.model._compiled_call_impl = compiled
    probe(setup, ProbeData(setup.loader.dataset, None), Probe(100, (0,)), lambda phase: None)
    assert compiled_for == [64]
    assert sizes_of(setup.model.batches) == [64, 36]


def test_each_seed_is_built_trained_and_evaluated_in_phases_of_its_own(tmp_path):
    folder, dataset = TrialFolder(tmp_path), Numbered(8)
    seen = []

    def build_model():
        seen.append(f"built in {folder.phase}")
        return Noting()

    def compute_loss(model, batch):
        seen.append(f"trained in {folder.phase}")
        return model(batch).square().mean()

    def evaluate(model, device):
        seen.append(f"evaluated in {folder.phase}")
        return 1.0

    workload = workload_of(
        dataset, build_model=build_model, compute_loss=compute_loss, evaluate=evaluate
    )
    task = Probe(samples=4, seeds=(0, 1, 2))
    config = TrainingConfig.of({"num_threads": 1, "batch_size": 4})
    bench = LoadedJob(Job(task=task, device="cpu"), folder, workload, config, start_seconds=0.0)
    assert probe_seeds(bench, task).qualities == (1.0, 1.0, 1.0)
    assert seen == 3 * ["built in build", "trained in probe", "evaluated in evaluation"]
