"""The numerical check: compare what a configuration computes with the reference, rounding aside.

Loss and gradients of one batch are computed three times from the same weights: in float64, which
counts as right; under the reference settings, which shows the effect of rounding alone; and under
the job's settings. One update of the optimizer from equal gradients follows. Then come a few whole
steps on the same batches, whose final weights and buffers show errors that arise later.

The model stays in training mode, since BatchNorm computes something else in eval mode. Dropout is
off, because equal seeds give equal masks only under equal number formats. All other random numbers
come from the same seed each time.
"""

from __future__ import annotations

import copy
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from autotune.configuration.job import Gate
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.torch_private import draw_as_eager_does, is_dropout, map_leaves
from autotune.numerics import trajectory
from autotune.process.common.trial_folder import NUMERICS_CHECK
from autotune.training.batches import endless
from autotune.training.quality import NonFiniteLossError
from autotune.training.tasks import LoadedJob
from autotune.training.training_setup import (
    TrainingSetup,
    build_dataset,
    build_loader,
    seed_everything,
)
from autotune.values.outcome import Gated, TrialOutcome

State = Mapping[str, Any]
"""A model's state_dict."""


@dataclass(frozen=True)
class TrainingLoops:
    """A builder of equal training loops; each use needs a new one, since optimizers have state."""

    loaded: LoadedJob
    dataset: Dataset[Any]
    store: trajectory.DiskStore

    def setup(self, state: State | None = None) -> TrainingSetup:
        """Return a training loop without dropout, with these weights if any are given."""
        setup = self.loaded.setup(self.dataset, self.loaded.job.seed)
        for module in setup.model.train().modules():
            if is_dropout(module):
                module.p = 0.0  # type: ignore[assignment]  # mypy does not know the private class
            elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
                module.dropout = 0.0
        if state is not None:
            setup.model.load_state_dict(state)
        return setup

    def batches(self) -> Iterator[Any]:
        """Yield batches without end, the same ones in each call."""
        loaded = self.loaded
        seed_everything(loaded.job.seed)
        config, workload, seed = loaded.config, loaded.workload, loaded.job.seed
        return endless(build_loader(config, workload, self.dataset, seed, loaded.world))


@contextmanager
def double_by_default() -> Iterator[None]:
    """Let new tensors be float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def doubled(leaf: Any) -> Any:
    """Return a leaf of a batch in float64 if it is a tensor of real numbers."""
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


@dataclass(frozen=True)
class _Computed:
    """Loss and gradients of one batch, or mean loss and summed gradients of several."""

    loss: float
    gradients: trajectory.Tensors

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(trajectory.norm(self.gradients))


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

    def sums(compute: Callable[..., _Computed | None]) -> list[_Computed]:
        found = []
        for side in sides:
            one = compute(loops, side, _collated(loops, side, samples), state)
            if one is None:  # nor would the other side be of use
                break
            found.append(one)
        return found

    exact = sums(_exact) if in_double else []
    is_exact = len(exact) == len(sides)
    one, other = exact if is_exact else sums(_sums)
    if not (one.is_finite and other.is_finite):
        raise NonFiniteLossError("a loss or a gradient of one batch is not finite")
    return Gated(
        loss_error=_loss_distance(other, one),
        gradient_error=_distance(other, one),
        in_double=is_exact,
    )


def _samples(loops: TrainingLoops, whole: TrainingConfig) -> list[Any]:
    """Return the samples of the first optimizer step, not collated."""
    config = whole.replace(batch_size=whole.effective_batch, accumulation_steps=1)
    workload, seed = replace(loops.loaded.workload, collate_fn=list), loops.loaded.job.seed
    seed_everything(seed)
    samples: list[Any] = next(endless(build_loader(config, workload, loops.dataset, seed)))
    return samples


def _exact(
    loops: TrainingLoops, config: TrainingConfig, batches: Iterator[Any], state: State
) -> _Computed | None:
    """Return `_sums` in float64, without autocast; None if that does not work."""
    try:
        found = _sums(loops, config.replace(amp_dtype=None), batches, state, in_double=True)
    # Code that was not written for float64 may raise anything; memory may run out.
    except Exception:
        return None
    return found if found.is_finite else None


def _sums(
    loops: TrainingLoops,
    config: TrainingConfig,
    batches: Iterator[Any],
    state: State,
    in_double: bool = False,
) -> _Computed:
    """Return mean loss and summed gradients of the batches of one step."""
    setup = replace(loops, loaded=replace(loops.loaded, config=config)).setup(state)
    if in_double:
        setup.model.double()
        batches = (map_leaves(doubled, batch) for batch in batches)
    seed_everything(loops.loaded.job.seed)
    with double_by_default() if in_double else nullcontext():
        loss = setup.accumulate(batches, setup.batches_per_step)
    gradients = {n: p.grad for n, p in setup.model.named_parameters() if p.grad is not None}
    return _Computed(float(loss), loops.store.put_all(gradients))


def _collated(loops: TrainingLoops, config: TrainingConfig, samples: list[Any]) -> Iterator[Any]:
    """Yield the samples in batches of the configuration's size."""
    size, collate = int(config["batch_size"] or 1), loops.loaded.workload.collate_fn
    for start in range(0, len(samples), size):
        # A collate_fn may change the samples that it gets.
        yield (collate or default_collate)(copy.deepcopy(samples[start : start + size]))


# A fresh GradScaler starts at the first; training settles at the largest without overflow.
_LOSS_SCALES = (2.0**16, 2.0**12, 2.0**8, 2.0**4, 1.0)
# Relative; sums without a fixed order, as on a GPU, change gradients by less from run to run: they
# are sums in TF32 at worst, whose epsilon this is. A model that draws numbers changes them by more.
_NONDETERMINISM = 2.0**-10


@dataclass(frozen=True)
class _Reference:
    """Results under the reference settings, which those under the job's settings are compared with.

    Spreads are distances relative to the size of the gradients.
    """

    state: State
    """The model's state_dict, for loading into another model."""
    before: trajectory.Snapshot
    """Parameters and buffers before the first step."""
    standard: _Computed
    """Loss and gradients under the reference settings."""
    seed_spread: float
    """Relative change of the gradients under another seed."""
    batch_spread: float
    """Relative change of the gradients on another batch."""
    updated: trajectory.Tensors
    """The parameters after one update from the gradients of `standard`."""
    in_double: _Computed | None = None
    """Loss and gradients in float64; None if not asked for or if the model does not run in it."""


def compare(loaded: LoadedJob, task: Gate) -> TrialOutcome:
    """Compare loss, gradients, update and first steps under the job's settings with the reference.

    Where these have another batch size and the same effective batch, gradients alone are compared.
    Memory use is that of training, because all tensors that are compared lie in a file. Several
    processes, each on batches of its own, have the same gradients and take the same decisions.

    Raises:
        NonFiniteLossError: loss, gradients or weights are not finite under one of the two settings.
    """
    loaded.folder.enter_phase(NUMERICS_CHECK)
    with tempfile.TemporaryFile(dir=loaded.folder.path) as file:
        loops = TrainingLoops(loaded, build_dataset(loaded.workload), trajectory.DiskStore(file))
        reference = TrainingConfig.of(task.reference)
        if reference["batch_size"] != loaded.config["batch_size"]:
            return compare_splits(loops, reference, task.in_double)
        return _compared(loops, task)


def _compared(loops: TrainingLoops, task: Gate) -> TrialOutcome:
    loaded, seed, store = loops.loaded, loops.loaded.job.seed, loops.store
    plain = replace(loops, loaded=replace(loaded, config=TrainingConfig.of(task.reference)))
    plain.loaded.settings.apply_to_process()
    used = list(map(store.put_batch, itertools.islice(plain.batches(), trajectory.STEPS)))
    reference = _in_single(plain, used)
    if task.in_double:
        single = plain.loaded.config.replace(accumulation_steps=1)
        exact = _exact(plain, single, iter((used[0](),)), reference.state)
        reference = replace(reference, in_double=exact)
    end = trajectory.steps(plain.setup(reference.state), used, seed, store)
    loaded.settings.apply_to_process()
    gated, rounding, tested_end = _tested(loops, reference, used)
    plain.loaded.settings.apply_to_process()
    nudged = plain.setup(reference.state)
    trajectory.nudge(nudged.model.parameters(), rounding)
    nudged_end = trajectory.steps(nudged, used, seed + 1, store)
    apart = trajectory.distances(reference.before, end, tested_end)
    noise = trajectory.distances(reference.before, end, nudged_end)
    return replace(
        gated,
        path_error=apart.path,
        reach_error=apart.reach,
        buffer_error=apart.buffers,
        rounding_path_error=noise.path,
        rounding_reach_error=noise.reach,
        rounding_buffer_error=noise.buffers,
    )


def _tested(
    loops: TrainingLoops, reference: _Reference, used: Sequence[trajectory.Load]
) -> tuple[Gated, float, trajectory.Snapshot]:
    """Return the errors on the first batch, how much of them is rounding, and the steps' end."""
    seed, store = loops.loaded.job.seed, loops.store
    if reference.seed_spread > _NONDETERMINISM and loops.loaded.config["compile_mode"] is not None:
        draw_as_eager_does()
    updated = _update(loops.setup(reference.state), reference.standard.gradients, store)
    setup = loops.setup(reference.state)
    computed = _compute(setup, used[0], seed, store)
    # A larger difference than the number format explains is no rounding.
    epsilon = trajectory.epsilon(loops.loaded.config)
    rounding = min(_distance(computed, reference.standard), epsilon)
    setup.model.load_state_dict(reference.state)
    gated = _gated(reference, computed, updated)
    return gated, rounding, trajectory.steps(setup, used, seed, store)


def _in_single(loops: TrainingLoops, used: Sequence[trajectory.Load]) -> _Reference:
    """Compute the reference without float64, for which this model has to be freed first."""
    setup, seed, store = loops.setup(), loops.loaded.job.seed, loops.store
    state, before = store.put_all(setup.model.state_dict()), trajectory.snapshot(setup, store)
    standard = _compute(setup, used[0], seed, store)
    return _Reference(
        state=state,
        before=before,
        standard=standard,
        seed_spread=_distance(_compute(setup, used[0], seed + 1, store), standard),
        batch_spread=_distance(_compute(setup, used[1], seed, store), standard),
        updated=_update(setup, standard.gradients, store),
    )


def _compute(
    setup: TrainingSetup, load: trajectory.Load, seed: int, store: trajectory.DiskStore
) -> _Computed:
    """Return loss and gradients; a scaled loss uses the largest scale without overflow.

    Raises:
        NonFiniteLossError: they are not finite at any scale.
    """
    for scale in _LOSS_SCALES if setup.scaler.is_enabled() else (1.0,):
        computed = _backward(setup, setup.transfer(load()), seed, store, scale)
        if computed.is_finite:
            return computed
    what = "the loss" if not math.isfinite(computed.loss) else "a gradient"
    raise NonFiniteLossError(f"{what} of one batch is not finite")


def _backward(
    setup: TrainingSetup, batch: Any, seed: int, store: trajectory.DiskStore, scale: float = 1.0
) -> _Computed:
    setup.model.zero_grad(set_to_none=True)
    seed_everything(seed)
    with setup.forward_context():
        loss = setup.workload.compute_loss(setup.trained, batch)
    (loss * scale).backward()  # type: ignore[no-untyped-call]
    gradients = {
        name: parameter.grad if scale == 1 else parameter.grad.div_(scale)
        for name, parameter in setup.model.named_parameters()
        if parameter.grad is not None
    }
    computed = _Computed(float(loss.detach()), store.put_all(gradients))
    setup.model.zero_grad(set_to_none=True)
    return computed


def _update(
    setup: TrainingSetup, gradients: trajectory.Tensors, store: trajectory.DiskStore
) -> trajectory.Tensors:
    """Return the parameters after the optimizer's first step from these gradients."""
    for name, parameter in setup.model.named_parameters():
        gradient = gradients.get(name)
        parameter.grad = (
            None if gradient is None else torch.empty_like(parameter).copy_(gradient).detach()
        )
    setup.optimizer.step()
    return trajectory.snapshot(setup, store).weights


def _gated(reference: _Reference, computed: _Computed, updated: trajectory.Tensors) -> Gated:
    """Return the errors on one batch; those of the first steps are 0 until they are filled in."""
    standard, seed_spread = reference.standard, reference.seed_spread
    in_double = reference.in_double
    draws = seed_spread > _NONDETERMINISM
    if in_double is not None and draws and _distance(standard, in_double) > seed_spread / 2:
        in_double = None  # as far off as another seed: on a GPU it draws other numbers
    best_known = in_double or standard
    before = reference.before.weights
    eps = (torch.finfo(p.dtype).eps * trajectory.norm({"": p}) for p in before.values())
    off = trajectory.distance(updated, reference.updated) - math.hypot(*eps)  # less rounding
    return Gated(
        loss_error=_loss_distance(computed, best_known),
        gradient_error=_distance(computed, best_known),
        update_error=trajectory.share(
            max(0.0, off), trajectory.distance(reference.updated, before)
        ),
        reference_loss_error=_loss_distance(standard, best_known),
        reference_gradient_error=_distance(standard, best_known),
        seed_spread=seed_spread,
        batch_spread=reference.batch_spread,
        in_double=in_double is not None,
    )


def _loss_distance(computed: _Computed, best_known: _Computed) -> float:
    return trajectory.share(abs(computed.loss - best_known.loss), abs(best_known.loss))


def _distance(computed: _Computed, best_known: _Computed) -> float:
    return trajectory.share(
        trajectory.distance(computed.gradients, best_known.gradients),
        trajectory.norm(best_known.gradients),
    )
