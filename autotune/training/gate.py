"""The numeric gate: whether a configuration computes the same, rounding aside.

One batch, one set of weights, three computations of loss and gradients: in float64, which stands
for what is right; under the reference settings, which shows what rounding alone does; and under the
job's settings. Then one update of the optimizer from equal gradients, and a few whole steps on the
same batches, for what goes wrong later only: their losses, and the weights afterwards. The model
stays in training mode, since BatchNorm computes something else in eval mode. Dropout is off,
because equal seeds give equal masks only where the number formats are equal. What else the model
draws comes from the same seed each time.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.data import Dataset

from autotune.config import TrainingConfig
from autotune.job import Gate
from autotune.outcome import Gated, TrialOutcome
from autotune.training import trajectory
from autotune.training.apply import (
    TrainingSetup,
    build_dataset,
    build_loader,
    build_model,
    seed_everything,
)
from autotune.training.quality import NonFiniteLossError
from autotune.training.settings import Settings
from autotune.training.tasks import Bench
from autotune.training.trajectory import (
    LEAST_ROUNDING,
    Tensors,
    difference,
    kept,
    norm,
    parameters,
    share,
)

State = Mapping[str, Any]

# A fresh GradScaler starts at the first; training settles at what does not overflow.
_LOSS_SCALES = (2.0**16, 2.0**12, 2.0**8, 2.0**4, 1.0)
# Sums in no fixed order, as on a GPU, change gradients by less from run to run.
_NONDETERMINISM = 1e-3
# Two kernels may round an update differently by so many units in a parameter's last place.
_ROUNDING_UNITS = 4


@dataclass(frozen=True)
class _Computed:
    """Loss and gradients, on the CPU."""

    loss: float
    gradients: Tensors

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and all(
            bool(torch.isfinite(gradient).all()) for gradient in self.gradients.values()
        )


@dataclass(frozen=True)
class _Reference:
    """What the job's settings are compared with."""

    state: State
    """The model's, to load into another."""
    before: Tensors
    """The parameters before the update."""
    standard: _Computed
    other_seed: _Computed
    other_batch: _Computed
    in_double: _Computed | None
    updated: Tensors
    """The parameters after one update from the standard's gradients."""


@dataclass(frozen=True)
class _Stand:
    """Builds one training loop as often as needed: a used optimizer remembers what it did."""

    bench: Bench
    dataset: Dataset[Any]

    def setup(self, state: State | None = None) -> TrainingSetup:
        setup = self.bench.setup(self.dataset, self.bench.job.seed)
        _without_dropout(setup.model.train())
        if state is not None:
            setup.model.load_state_dict(state)
        return setup

    def batches(self) -> Iterator[Any]:
        """The same ones each time, without end."""
        bench = self.bench
        seed_everything(bench.job.seed)
        loader = build_loader(bench.config, bench.workload, self.dataset, bench.job.seed)
        return trajectory.without_end(loader)


def compare(bench: Bench, task: Gate) -> TrialOutcome:
    """Distances of loss, gradients, update and first steps under the job's settings.

    Raises:
        NonFiniteLossError: loss or gradients are not finite under one of the two settings.
    """
    bench.folder.enter_phase("gate: reference")
    stand = _Stand(bench, build_dataset(bench.workload))
    plain = replace(stand, bench=replace(bench, config=TrainingConfig.of(task.reference)))
    Settings(plain.bench.config).apply_to_process()
    batches = plain.batches()
    pair = next(batches), next(batches)
    reference = _refer(plain, pair, task.in_double)
    way = trajectory.find_way(
        lambda: plain.setup(reference.state),
        reference.before,
        itertools.chain(pair, batches),
        bench.job.seed,
    )
    bench.folder.enter_phase("gate")
    Settings(bench.config).apply_to_process()
    if _distance(reference.other_seed, reference.standard) > _NONDETERMINISM:
        _draw_as_eager_does(bench.config)
    updated = _update(stand.setup(reference.state), reference.standard.gradients)
    setup, seed = stand.setup(reference.state), bench.job.seed
    computed = _compute(setup, setup.transfer(pair[0]), seed)
    setup.model.load_state_dict(reference.state)
    losses = trajectory.train(setup, way.batches, seed)
    apart = trajectory.apart(reference.before, way.end, trajectory.ended(setup))
    return replace(
        _gated(reference, computed, _update_error(reference, updated)),
        trajectory_error=trajectory.deviation(
            losses, way.losses, way.other_losses, _rounding(bench.config)
        ),
        path_error=apart.path,
        reach_error=apart.reach,
        reference_path_error=way.noise,
    )


def _refer(stand: _Stand, pair: tuple[Any, Any], in_double: bool) -> _Reference:
    setup, seed = stand.setup(), stand.bench.job.seed
    state = copy.deepcopy(setup.model.state_dict())
    batch, other = map(setup.transfer, pair)
    standard = _compute(setup, batch, seed)
    return _Reference(
        state=state,
        before=parameters(setup),
        standard=standard,
        other_seed=_compute(setup, batch, seed + 1),
        other_batch=_compute(setup, other, seed),
        in_double=_compute_in_double(setup, batch, state, seed) if in_double else None,
        updated=_update(setup, standard.gradients),
    )


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0


def _draw_as_eager_does(config: TrainingConfig) -> None:
    """Compiled code has random numbers of its own, which no seed makes equal to eager ones."""
    if config["compile_mode"] is not None:
        import torch._inductor.config

        torch._inductor.config.fallback_random = True


def _compute(setup: TrainingSetup, batch: Any, seed: int) -> _Computed:
    """Loss and gradients; where the loss is scaled, with the largest scale that does not overflow.

    Raises:
        NonFiniteLossError: they are not finite.
    """
    for scale in _LOSS_SCALES if setup.scaler.is_enabled() else (1.0,):
        computed = _backward(setup, batch, seed, scale)
        if computed.is_finite:
            return computed
    what = "the loss" if not math.isfinite(computed.loss) else "a gradient"
    raise NonFiniteLossError(f"{what} of one batch is not finite")


def _backward(setup: TrainingSetup, batch: Any, seed: int, scale: float = 1.0) -> _Computed:
    setup.model.zero_grad(set_to_none=True)
    seed_everything(seed)
    with setup.forward_context():
        loss = setup.workload.compute_loss(setup.model, batch)
    (loss * scale).backward()  # type: ignore[no-untyped-call]
    gradients = {
        name: kept(parameter.grad) / scale
        for name, parameter in setup.model.named_parameters()
        if parameter.grad is not None
    }
    return _Computed(float(loss.detach()), gradients)


def _compute_in_double(
    setup: TrainingSetup, batch: Any, state: State, seed: int
) -> _Computed | None:
    """The same in float64, without autocast; None where the model does not run in it."""
    settings = Settings(setup.config.replace(amp_dtype=None))
    try:
        model = build_model(setup.workload).to(setup.device).double().train()
        model.load_state_dict(state)
        _without_dropout(model)
        with _double_by_default():
            exact = replace(setup, settings=settings, model=model)
            computed = _backward(exact, tree_map(_doubled, batch), seed)
    # Anything may go wrong in code that was never meant to run in float64; memory may run out.
    except Exception:
        return None
    return computed if computed.is_finite else None


@contextmanager
def _double_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _doubled(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _update(setup: TrainingSetup, gradients: Tensors) -> Tensors:
    """The parameters after the optimizer's first step from these gradients."""
    for name, parameter in setup.model.named_parameters():
        gradient = gradients.get(name)
        parameter.grad = (
            None if gradient is None else torch.empty_like(parameter).copy_(gradient).detach()
        )
    setup.optimizer.step()
    return parameters(setup)


def _update_error(reference: _Reference, updated: Tensors) -> float:
    """Distance of two updates beyond what rounding the parameters explains, relative to one."""
    before = reference.before
    rounding = math.hypot(*(torch.finfo(p.dtype).eps * norm({"": p}) for p in before.values()))
    distance = norm(difference(updated, reference.updated)) - _ROUNDING_UNITS * rounding
    return share(max(0.0, distance), norm(difference(reference.updated, before)))


def _rounding(config: TrainingConfig) -> float:
    """Of a loss: by how much the forward pass tells numbers apart."""
    amp_dtype = config["amp_dtype"]
    own = torch.finfo(getattr(torch, str(amp_dtype))).eps if amp_dtype else 0.0
    return max(LEAST_ROUNDING, own)


def _gated(reference: _Reference, computed: _Computed, update_error: float) -> Gated:
    """What one batch shows; the first steps are still to come."""
    standard, seed_spread = reference.standard, _distance(reference.other_seed, reference.standard)
    in_double = reference.in_double
    if in_double is not None and _drew_otherwise(_distance(standard, in_double), seed_spread):
        in_double = None
    best_known = in_double or standard
    return Gated(
        loss_error=_loss_distance(computed, best_known),
        gradient_error=_distance(computed, best_known),
        gradient_cosine=_cosine(computed.gradients, best_known.gradients),
        update_error=update_error,
        trajectory_error=0.0,
        path_error=0.0,
        reach_error=0.0,
        reference_loss_error=_loss_distance(standard, best_known),
        reference_gradient_error=_distance(standard, best_known),
        reference_path_error=0.0,
        seed_spread=seed_spread,
        batch_spread=_distance(reference.other_batch, standard),
        in_double=in_double is not None,
    )


def _drew_otherwise(distance: float, seed_spread: float) -> bool:
    """Whether float64 is as far off as another seed: on a GPU it draws other random numbers."""
    return seed_spread > _NONDETERMINISM and distance > seed_spread / 2


def _loss_distance(computed: _Computed, best_known: _Computed) -> float:
    return share(abs(computed.loss - best_known.loss), abs(best_known.loss))


def _distance(computed: _Computed, best_known: _Computed) -> float:
    distance = norm(difference(computed.gradients, best_known.gradients))
    return share(distance, norm(best_known.gradients))


def _cosine(one: Tensors, other: Tensors) -> float:
    shared = [float((one[n].double() * other[n].double()).sum()) for n in one if n in other]
    sizes = norm(one) * norm(other)
    return math.fsum(shared) / sizes if sizes else 1.0
