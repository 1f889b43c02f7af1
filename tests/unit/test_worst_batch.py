"""Which batch is taken to look at the memory where samples differ in length."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from autotune.training.loading.worst_batch import sample_length, worst_batch
from autotune.values.outcome import Measured
from children import WORKLOADS, job_for, run_child


def padded(lengths: list[int], batch_size: int = 2) -> DataLoader[Any]:
    rows = [torch.ones(length) for length in lengths]
    return DataLoader(
        rows,  # type: ignore[arg-type]
        batch_size=batch_size,
        collate_fn=lambda samples: pad_sequence(samples, batch_first=True),
    )


def test_the_longest_samples_are_taken_together() -> None:
    batch = worst_batch(padded([3, 9, 1, 7, 2]))
    assert batch.sum(dim=1).tolist() == [9, 7]


def test_they_are_repeated_where_a_batch_holds_more() -> None:
    batch = worst_batch(padded([3, 9], batch_size=4))
    assert batch.sum(dim=1).tolist() == [9, 3, 9, 3]


def test_reading_ends_after_half_a_second() -> None:
    seconds = chain([0.0], repeat(0.6))
    read: list[int] = []

    class Slow(TensorDataset):
        def __getitem__(self, index: int) -> Tensor:
            read.append(index)
            return torch.ones(index + 1)

    loader = DataLoader(Slow(torch.zeros(5000)), batch_size=1)
    assert worst_batch(loader, lambda: next(seconds)) is not None
    assert len(read) == 2 + 1, "two to look, one for the batch"


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        yield torch.ones(3)


@pytest.mark.parametrize(
    "loader",
    [
        padded([4, 4, 4]),
        DataLoader(Stream(), batch_size=2),
        DataLoader([object(), object()], batch_size=2),  # type: ignore[arg-type]
        DataLoader([torch.ones(1), torch.ones(2)], batch_size=2),  # type: ignore[arg-type]
    ],
    ids=["equal", "stream", "no tensor", "not padded"],
)
def test_where_nothing_is_known_nothing_is_taken(loader: DataLoader[Any]) -> None:
    assert worst_batch(loader) is None


@pytest.mark.parametrize(
    ("sample", "length"),
    [
        (torch.ones(2, 3), 6),
        ((torch.ones(5), 1), 5),
        ({"input_ids": [1, 2, 3], "label": 0}, 3),
        (torch.ones(4).numpy(), 4),
        ("text", None),
        ((), None),
    ],
    ids=["tensor", "pair", "tokens", "array", "text", "empty"],
)
def test_a_sample_is_as_long_as_its_first_tensor(sample: Any, length: int | None) -> None:
    assert sample_length(sample) == length


def test_a_trial_ends_with_the_worst_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHS", str(tmp_path / "lengths"))
    outcome = run_child(tmp_path, job_for(WORKLOADS / "padded.py"))
    assert isinstance(outcome, Measured), outcome
    assert (tmp_path / "lengths").read_text().split() == ["1000"] * 8
