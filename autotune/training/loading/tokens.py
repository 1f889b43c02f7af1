"""Count the tokens of a training set, apart from the timed steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from autotune.values.measurement import TokenCount

_MOST_SAMPLES = 1000
# Seconds of reading and counting; at least one batch is counted.
_MOST_SECONDS = 0.25


def count_tokens(
    loader: DataLoader[Any],
    tokens_in: Callable[[Any], int],
    clock: Callable[[], float] = time.perf_counter,
) -> TokenCount | None:
    """Count the tokens of batches as `loader` makes them; None for a stream that gives no batch.

    The batches are of a random part of the dataset, the same part in each process, or of a stream's
    beginning. It has 1000 samples, or fewer if that takes a quarter of a second.
    """
    is_stream, start = isinstance(loader.dataset, IterableDataset), clock()
    size, tokens, samples = loader.batch_size or 1, 0, 0
    batches = DataLoader(
        loader.dataset,
        batch_size=size,
        shuffle=None if is_stream else True,
        drop_last=True,
        collate_fn=loader.collate_fn,
        generator=torch.Generator().manual_seed(0),
    )
    for batch in batches:
        tokens += tokens_in(batch)
        samples += size
        if samples >= _MOST_SAMPLES or clock() - start > _MOST_SECONDS:
            break
    return TokenCount(tokens, samples) if samples else None
