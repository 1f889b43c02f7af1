"""Which batch is taken to look at the memory where samples differ in length."""

from collections import UserDict
from dataclasses import replace
from itertools import chain, repeat

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from autotune.training.sample_lengths import sample_length, worst_batch
from autotune.values.measurement import LengthCount
from autotune.values.outcome import Measured
from children import WORKLOADS, job_for, run_child
from scripted_runner import ScriptedRunner, at, batch_of, events_of, unstored_in


def padded(lengths, batch_size=2):
    rows = [torch.ones(length) for length in lengths]
    return DataLoader(
        rows,
        batch_size=batch_size,
        collate_fn=lambda samples: pad_sequence(samples, batch_first=True),
    )


def lengths_in(found):
    """Return the length of each sample of a padded batch."""
    return found.batch.sum(dim=1).tolist()


def test_the_longest_samples_are_taken_together():
    found = worst_batch(padded([3, 9, 1, 7, 2]))
    assert lengths_in(found) == [9, 7]
    assert found.among == LengthCount(looked_at=5, dataset=5)


def test_all_of_a_dataset_that_is_read_at_once_are_looked_at():
    lengths = [1, 2] * 1500
    lengths[2750] = 9
    found = worst_batch(padded(lengths), clock=lambda: 0.0)
    assert lengths_in(found) == [9, 2]
    assert found.among == LengthCount(looked_at=3000, dataset=3000)


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
    assert found.among == LengthCount(len(numbers), len(numbers))
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
    assert found.among == LengthCount(looked_at=2, dataset=5000)
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
    assert len(found.batch) == 64
    assert len(read) == 2 + 2, "two to look, and the same two for the batch"


class Stream(IterableDataset[Tensor]):
    def __iter__(self):
        yield torch.ones(3)


@pytest.mark.parametrize(
    "loader",
    [
        padded([4, 4, 4]),
        DataLoader(Stream(), batch_size=2),
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
    outcome = run_child(tmp_path, job_for(WORKLOADS / "padded.py"))
    assert isinstance(outcome, Measured), outcome
    assert (tmp_path / "lengths").read_text().split() == ["1000"] * 8
    among = outcome.measurement.longest_among
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
    assert "the longest of 400 of 20000 samples" in memory.in_words
