"""The samples of a probe, and the longest samples of a dataset for the worst batch."""

from collections import Counter, UserDict
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from autotune.configuration.job import Job, Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.process.common.trial_folder import TrialFolder
from autotune.training.batches import EmptyEpochError
from autotune.training.quality import probe
from autotune.training.tasks import LoadedJob, sample_length, worst_batch
from autotune.training.tasks import probe as probe_seeds
from autotune.training.training_setup import apply
from autotune.training.workload import Workload, default_optimizer
from autotune.values.measurement import LengthCount
from autotune.values.outcome import Measured
from children import WORKLOADS, job_for, measured, run_child
from scripted_runner import ScriptedRunner, at, batch_of, events_of, unstored_in


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
    probe(setup, None, Probe(samples, (0,)), lambda phase: None)
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
    probe(setup, None, Probe(100, (0,)), lambda phase: None)
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
    assert seen == 3 * ["built in build", "trained in short training", "evaluated in evaluation"]


def padded(lengths, batch_size=2):
    rows = [torch.ones(length) for length in lengths]
    return DataLoader(
        rows,
        batch_size=batch_size,
        collate_fn=lambda samples: pad_sequence(samples, batch_first=True),
    )


def lengths_in(found):
    """Return the length of each sample of a padded batch."""
    return found[0].sum(dim=1).tolist()


def test_the_longest_samples_are_taken_together():
    found = worst_batch(padded([3, 9, 1, 7, 2]))
    assert lengths_in(found) == [9, 7]
    assert found[1] == LengthCount(looked_at=5, dataset=5)


def test_all_of_a_dataset_that_is_read_at_once_are_looked_at():
    lengths = [1, 2] * 1500
    lengths[2750] = 9
    found = worst_batch(padded(lengths), clock=lambda: 0.0)
    assert lengths_in(found) == [9, 2]
    assert found[1] == LengthCount(looked_at=3000, dataset=3000)


class Told(TensorDataset):
    """Says how long its samples are; reading one takes a second."""

    lengths = torch.tensor([1, 2] * 2500 + [9])
    seconds = 0.0

    def __getitem__(self, index):
        Told.seconds += 1.0
        return torch.ones(int(self.lengths[index]))


@pytest.mark.parametrize("numbers", [range(5001), range(5000, 0, -1)], ids=["whole", "subset"])
def test_lengths_that_the_dataset_tells_are_not_read(numbers):
    dataset = Subset(Told(torch.zeros(5001)), numbers)
    loader = DataLoader(dataset, batch_size=2, collate_fn=padded([]).collate_fn)
    Told.seconds = 0.0
    found = worst_batch(loader, lambda: Told.seconds)
    assert lengths_in(found) == [9, 2]
    assert found[1] == LengthCount(len(numbers), len(numbers))
    assert Told.seconds == 2.0


def test_they_are_repeated_where_a_batch_holds_more():
    assert lengths_in(worst_batch(padded([3, 9], batch_size=4))) == [9, 3, 9, 3]


def test_reading_ends_after_half_a_second():
    seconds = chain([0.0], repeat(0.6))
    read = []

    class Slow(TensorDataset):
        def __getitem__(self, index):
            read.append(index)
            return torch.ones(index + 1)

    loader = DataLoader(Slow(torch.zeros(5000)), batch_size=1)
    found = worst_batch(loader, lambda: next(seconds))
    assert found[1] == LengthCount(looked_at=2, dataset=5000)
    assert len(read) == 2 + 1, "two to look, one for the batch"


def test_a_slow_sample_is_read_once_more_however_large_the_batch():
    seconds = chain([0.0], repeat(0.6))
    read = []

    class Slow(Dataset[dict[str, Tensor]]):
        def __len__(self):
            return 5000

        def __getitem__(self, index):
            read.append(index)
            return {"row": torch.ones(index + 1)}

    def changing(samples):
        return pad_sequence([sample.pop("row") for sample in samples], batch_first=True)

    loader = DataLoader(Slow(), batch_size=64, collate_fn=changing)
    found = worst_batch(loader, lambda: next(seconds))
    assert len(found[0]) == 64
    assert len(read) == 2 + 2, "two to look, and the same two for the batch"


class OneSample(IterableDataset[Tensor]):
    def __iter__(self):
        yield torch.ones(3)


@pytest.mark.parametrize(
    "loader",
    [
        padded([4, 4, 4]),
        DataLoader(OneSample(), batch_size=2),
        DataLoader([object(), object()], batch_size=2),
        DataLoader([torch.ones(1), torch.ones(2)], batch_size=2),
    ],
    ids=["equal", "stream", "no tensor", "not padded"],
)
def test_where_nothing_is_known_nothing_is_taken(loader):
    assert worst_batch(loader) is None


@pytest.mark.parametrize(
    ("sample", "length"),
    [
        (torch.ones(2, 3), 6),
        ((torch.ones(5), 1), 5),
        ({"label": 0, "input_ids": [1, 2, 3], "attention_mask": [1, 1, 1]}, 6),
        (UserDict({"label": 0, "input_ids": [1, 2, 3]}), 3),
        ({"label": 0, "input_ids": []}, 0),
        ({"label": 0}, None),
        (torch.ones(4).numpy(), 4),
        ("text", None),
        ((), None),
    ],
    ids=["tensor", "pair", "tokens", "encoding", "no tokens", "label", "array", "text", "empty"],
)
def test_a_sample_is_as_long_as_its_first_tensor(sample, length):
    assert sample_length(sample) == length


def test_a_trial_ends_with_the_worst_batch(tmp_path, monkeypatch):
    monkeypatch.setenv("LENGTHS", str(tmp_path / "lengths"))
    run = measured(run_child(tmp_path, job_for(WORKLOADS / "padded.py")))
    assert (tmp_path / "lengths").read_text().split() == ["1000"] * 8
    among = run.longest_among
    assert among.dataset == 20_000
    assert 8 < among.looked_at <= 20_000


def test_the_answer_says_among_how_many_samples_the_longest_were(tmp_path):
    def measure(config, phase):
        looked_at = 400 if phase == "confirmation" and batch_of(config) == 16 else 500
        run = at(10.0 * batch_of(config)).measurement
        return Measured(replace(run, longest_among=LengthCount(looked_at, 20_000)))

    options = unstored_in(tmp_path, "batch_size: [8, 16]\n")
    best = events_of(options, ScriptedRunner(measure))[-1].best
    memory = best.constraints.memory
    assert (memory.longest_of, memory.dataset_samples) == (400, 20_000)
    assert "the longest among 400 of 20000 samples" in memory.in_words
