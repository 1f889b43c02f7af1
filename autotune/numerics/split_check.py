"""Compare the summed gradients of micro-batches with those of a batch of the same samples.

A loss that is a mean over samples gives the same sum, rounding aside. BatchNorm, a mean over the
tokens of a batch and a contrastive loss do not. In float64 rounding is too small to be mistaken for
any of them, so both sides are computed in it if the model runs in it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import default_collate

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.torch_private import map_leaves
from autotune.numerics.training_loops import State, TrainingLoops, double_by_default, doubled
from autotune.numerics.trajectory import Tensors, distance, norm, share
from autotune.training.loading.batches import endless
from autotune.training.quality import NonFiniteLossError
from autotune.training.training_setup import build_loader, seed_everything
from autotune.values.outcome import Gated


@dataclass(frozen=True)
class _Sums:
    """Mean loss and summed gradients of the samples of an optimizer step."""

    loss: float
    gradients: Tensors

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(norm(self.gradients))


def compare_splits(loops: TrainingLoops, whole: TrainingConfig, in_double: bool) -> Gated:
    """Compare the gradients of one optimizer step under the job's settings with those of `whole`.

    Both have the same effective batch. `loss_error`, `gradient_error` and `in_double` of the result
    are measured; its other errors are 0.

    Raises:
        NonFiniteLossError: a loss or a gradient is not finite.
    """
    samples = _samples(loops, whole)
    state = loops.store.put_all(loops.setup().model.state_dict())
    sides = (whole, loops.loaded.config)
    sums = _sums_in_double(loops, sides, samples, state) if in_double else None
    one, other = sums or [_sums(loops, side, samples, state) for side in sides]
    if not (one.is_finite and other.is_finite):
        raise NonFiniteLossError("a loss or a gradient of one batch is not finite")
    return Gated(
        loss_error=share(abs(other.loss - one.loss), abs(one.loss)),
        gradient_error=share(distance(other.gradients, one.gradients), norm(one.gradients)),
        update_error=0.0,
        path_error=0.0,
        reach_error=0.0,
        buffer_error=0.0,
        reference_loss_error=0.0,
        reference_gradient_error=0.0,
        rounding_path_error=0.0,
        rounding_reach_error=0.0,
        rounding_buffer_error=0.0,
        seed_spread=0.0,
        batch_spread=0.0,
        in_double=sums is not None,
    )


def _samples(loops: TrainingLoops, whole: TrainingConfig) -> list[Any]:
    """Return the samples of the first optimizer step, not collated."""
    config = whole.replace(batch_size=whole.effective_batch, accumulation_steps=1)
    workload, seed = replace(loops.loaded.workload, collate_fn=list), loops.loaded.job.seed
    seed_everything(seed)
    samples: list[Any] = next(endless(build_loader(config, workload, loops.dataset, seed)))
    return samples


def _sums_in_double(
    loops: TrainingLoops, sides: Sequence[TrainingConfig], samples: list[Any], state: State
) -> list[_Sums] | None:
    """Return the sums in float64, without autocast; None if that does not work."""
    exact = [side.replace(amp_dtype=None) for side in sides]
    try:
        sums = [_sums(loops, side, samples, state, in_double=True) for side in exact]
    # Code that was not written for float64 may raise anything; memory may run out.
    except Exception:
        return None
    return sums if all(one.is_finite for one in sums) else None


def _sums(
    loops: TrainingLoops,
    config: TrainingConfig,
    samples: list[Any],
    state: State,
    in_double: bool = False,
) -> _Sums:
    setup = replace(loops, loaded=replace(loops.loaded, config=config)).setup(state)
    batches = _collated(loops, config, samples)
    if in_double:
        setup.model.double()
        batches = (map_leaves(doubled, batch) for batch in batches)
    seed_everything(loops.loaded.job.seed)
    with double_by_default() if in_double else nullcontext():
        loss = setup.accumulate(batches, setup.batches_per_step)
    gradients = {n: p.grad for n, p in setup.model.named_parameters() if p.grad is not None}
    return _Sums(float(loss), loops.store.put_all(gradients))


def _collated(loops: TrainingLoops, config: TrainingConfig, samples: list[Any]) -> Iterator[Any]:
    """Yield the samples in batches of the configuration's size."""
    size, collate = int(config["batch_size"] or 1), loops.loaded.workload.collate_fn
    for start in range(0, len(samples), size):
        # A collate_fn may change the samples that it gets.
        yield (collate or default_collate)(copy.deepcopy(samples[start : start + size]))
