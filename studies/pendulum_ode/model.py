"""A pendulum learnt from where it was and where it is later: a neural differential equation.

Each sample is a state of a damped pendulum (angle, speed) and its state two seconds later. A small
network gives the rates of change, and a Runge-Kutta scheme integrates them, so that a step is some
hundred small operations of which each takes a few microseconds.

What it teaches: where the operations are this small, starting them takes longer than computing
them. That is what `torch.compile` is for, and what larger batches hide.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

BASELINE = {"batch_size": 64, "num_workers": 0}

SAMPLES, SECONDS, STEPS = 60_000, 2.0, 6
DAMPING, EXACT_STEPS = 0.3, 200


def runge_kutta(rates, state: Tensor, steps: int) -> Tensor:
    """State (batch, 2) after `SECONDS`, integrated in so many steps of the classical scheme."""
    dt = SECONDS / steps
    for _ in range(steps):
        first = rates(state)
        second = rates(state + dt / 2 * first)
        third = rates(state + dt / 2 * second)
        fourth = rates(state + dt * third)
        state = state + dt / 6 * (first + 2 * second + 2 * third + fourth)
    return state


class PendulumODE(nn.Module):
    """A network of the rates of change, integrated."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = nn.Sequential(
            nn.Linear(2, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 2)
        )

    def forward(self, states: Tensor) -> Tensor:
        """States (batch, 2) two seconds after `states` (batch, 2)."""
        return runge_kutta(self.rates, states, STEPS)


def build_model() -> nn.Module:
    """The network that is tuned."""
    return PendulumODE()


def build_dataset() -> Dataset:
    """States of the pendulum as (now, two seconds later)."""
    random = torch.Generator().manual_seed(0)
    now = torch.randn(SAMPLES, 2, generator=random) * torch.tensor([1.5, 1.0])

    def rates(state: Tensor) -> Tensor:
        angle, speed = state.unbind(1)
        return torch.stack((speed, -torch.sin(angle) - DAMPING * speed), 1)

    return TensorDataset(now, runge_kutta(rates, now, EXACT_STEPS))


def build_optimizer(parameters, **options) -> torch.optim.Optimizer:
    """Adam at the rate that such small networks take."""
    return torch.optim.Adam(parameters, lr=3e-3, **options)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean squared error of a batch: states now (batch, 2) and later (batch, 2)."""
    now, later = batch
    return functional.mse_loss(model(now), later)
