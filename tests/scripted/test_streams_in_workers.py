"""A stream keeps its workers only where they were seen to share its samples."""

import itertools
import random
import re
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from autotune.configuration.job import Inspect, Job
from autotune.training import sharding
from autotune.training.sharding import Reading, finding, workers_obstacle
from autotune.values.outcome import Inspected
from children import WORKLOADS, ended_as, run_child
from factories import written
from tiers import late_in

LONG = 10**9


def sample(index):
    return torch.full((4,), float(index))


def slow(index):
    time.sleep(0.3)
    return sample(index)


def waiting(index):
    time.sleep(0.001)
    return sample(index)


def augmented(index):
    return sample(index) + torch.rand(4) + random.random() + np.random.rand()


def drawn_anew(index):
    return {"image": np.random.default_rng().random(4), "index": str(index)}


def fails_in_workers(index):
    if get_worker_info() is not None:
        raise ValueError("no licence for a second process")
    return sample(index)


def share():
    """Number of this worker and how many there are."""
    worker = get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


def every(samples):
    return itertools.islice(itertools.count(), samples)


def interleaved(samples):
    number, workers = share()
    return itertools.islice(itertools.count(), number, samples, workers)


def in_pieces(samples):
    number, workers = share()
    piece = samples // workers
    return range(number * piece, (number + 1) * piece)


def padded(samples):
    number, workers = share()
    return (index % samples for index in range(number, samples + 1, workers))


def a_quarter_each(samples):
    number, workers = share()
    return range(number, samples, workers**2)


def shuffled_whole(samples):
    """All samples, in an order of each worker's own."""
    worker = get_worker_info()
    order = random.Random(0 if worker is None else worker.seed)
    return order.sample(range(samples), samples)


def shuffled_shares(samples):
    number, workers = share()
    return random.Random(0).sample(range(samples), samples)[number::workers]


def repeated(samples):
    return (index % 8 for index in interleaved(samples))


@dataclass
class Graph:
    edges: Tensor
    names: Any


def often_blank(index):
    return sample(index if index % 20 else 0)


def nested(index):
    names = np.array([str(index), None], dtype=object)
    return {"graph": Graph(sample(index), names), "pixels": np.full(3, index), "label": (index,)}


def incomparable(index):
    return object()


class Stream(IterableDataset[Any]):
    """The samples whose numbers `indices(samples)` gives."""

    def __init__(self, indices, samples, load=sample):
        self.indices, self.samples, self.load = indices, samples, load

    def __iter__(self):
        return map(self.load, self.indices(self.samples))


class Once(IterableDataset[Any]):
    """A stream that can be gone through once."""

    def __init__(self):
        self.samples = map(sample, range(LONG))

    def __iter__(self):
        return self.samples


SHARED = {
    "short": Stream(interleaved, 400),
    "in pieces": Stream(in_pieces, 400),
    "padded": Stream(padded, 401),
    "long": Stream(interleaved, LONG),
    "long, in pieces": Stream(in_pieces, LONG),
    "endless": Stream(interleaved, None),
    "slow": Stream(interleaved, LONG, slow),
    "slow, in pieces": Stream(in_pieces, LONG, slow),
    "augmented": Stream(interleaved, 400, augmented),
    "long and augmented": Stream(interleaved, LONG, augmented),
    "drawn anew": Stream(interleaved, 400, drawn_anew),
    "repeating its samples": Stream(repeated, 400),
    "long, repeating its samples": Stream(in_pieces, LONG, often_blank),
    "long and shuffled": Stream(shuffled_shares, 30_000),
    "nested": Stream(interleaved, LONG, nested),
    "not comparable": Stream(interleaved, 400, incomparable),
}
# On a busy machine the look may end before both workers are through.
TWICE = r"an epoch has (800|at least [4-7]\d\d) samples with 2 workers, 400 without"
WHOLE = {
    "short": (Stream(every, 400), TWICE),
    "waiting 1 ms": (Stream(every, 5000, waiting), "are the same"),
    "endless": (Stream(every, None), "are the same"),
    "slow": (Stream(every, LONG, slow), "are the same"),
    "augmented": (Stream(every, LONG, augmented), "are the same"),
    "drawn anew": (Stream(every, 400, drawn_anew), TWICE),
    "nested": (Stream(every, LONG, nested), "are the same"),
    "not comparable": (Stream(every, 400, incomparable), TWICE),
    "read once": (Once(), "are the same"),
}


@pytest.mark.parametrize(
    "stream",
    late_in(
        SHARED,
        *("in pieces", "padded", "long, in pieces", "slow, in pieces", "long and augmented"),
        *("drawn anew", "repeating its samples", "not comparable"),
    ),
)
def test_a_stream_that_its_workers_share_keeps_them(stream):
    assert workers_obstacle(SHARED[stream]) == ""


@pytest.mark.parametrize(
    "stream", late_in(WHOLE, "waiting 1 ms", "slow", "drawn anew", "not comparable")
)
def test_a_stream_that_each_worker_gives_whole_gets_none(stream):
    dataset, seen = WHOLE[stream]
    why = workers_obstacle(dataset)
    assert why.startswith("the dataset is an IterableDataset, and each worker would load all of it")
    assert re.search(seen, why)


def test_workers_that_each_shuffle_the_whole_stream_are_refused(monkeypatch):
    """Two beginnings of 1000 of 30000 samples have some 33 in common, too few for a copy."""
    monkeypatch.setattr(sharding, "_SECONDS", 60.0)  # however slow the machine is
    why = workers_obstacle(Stream(shuffled_whole, 30_000))
    assert re.search(r"load all of it: \d\d of the first 1000 samples of 2 workers", why)


@pytest.mark.parametrize(("common", "is_refused"), [(0, False), (2, False), (3, True)])
def test_three_common_samples_at_the_beginning_of_a_stream_are_too_many(common, is_refused):
    numbers = [str(each).encode() for each in range(2000)]
    alone = Reading((numbers[:1000],))
    shared = Reading((numbers[:1000], numbers[1000 - common : 2000 - common]))
    assert bool(finding(alone, shared)) == is_refused


def test_workers_that_leave_samples_out_are_refused():
    why = workers_obstacle(Stream(a_quarter_each, 400))
    assert why.endswith("loses samples: an epoch has 200 samples with 2 workers, 400 without")


@pytest.mark.parametrize(
    ("stream", "seen"),
    [
        (Stream(interleaved, LONG, drawn_anew), "an epoch is too long to be counted"),
        (Stream(interleaved, LONG, incomparable), "an epoch is too long to be counted"),
        (Stream(interleaved, 400, fails_in_workers), "ValueError: no licence for a second process"),
    ],
    ids=["long and drawn anew", "long and not comparable", "failing in workers"],
)
def test_a_stream_of_which_nobody_can_tell_gets_none(stream, seen):
    why = workers_obstacle(stream)
    assert "it is unknown whether workers would share its samples" in why
    assert re.search(seen, why)


def test_no_worker_is_started_for_a_stream_whose_first_sample_is_slow(monkeypatch):
    monkeypatch.setattr(sharding, "_SLOW_SECONDS", 0.2)
    why = workers_obstacle(Stream(interleaved, 400, slow))
    assert "share its samples: its first sample takes 0." in why


def test_reading_ends_by_the_clock_where_samples_do_not():
    """Samples take 0.3 s each; counting them leaves the time of the machine out of account."""
    alone = sharding._read(Stream(every, LONG, slow), 0)
    assert 2 <= alone.samples <= 5
    assert not alone.is_whole


def facts_of(folder, model):
    outcome = ended_as(Inspected, run_child(folder, Job(Inspect(), "cpu", str(model))))
    assert outcome.workload is not None
    return outcome.workload


def test_an_inspection_observes_a_stream_and_reads_no_more_of_a_map_style_dataset(tmp_path):
    assert "each worker would load" in facts_of(tmp_path, WORKLOADS / "stream.py").workers_obstacle
    model = written(tmp_path, COUNTED, "model.py")
    assert facts_of(tmp_path, model).workers_obstacle == ""
    assert (tmp_path / "read").read_text().split() == ["0", "1"]


COUNTED = """
from dataclasses import dataclass
from pathlib import Path
import torch

def build_model():
    return torch.nn.Linear(4, 1)

def compute_loss(model, batch):
    return model(batch).square().mean()

def build_dataset():
    return Counted()

class Counted(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        with (Path(__file__).parent / "read").open("a") as file:
            file.write(f"{index} ")
        return torch.ones(4)
"""
