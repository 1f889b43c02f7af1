"""A library that trains as it is told: a dataclass has the settings, and a class takes them."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Arguments:
    batch_size: int = 16
    doubled: bool = False

    def __post_init__(self) -> None:
        self.samples = self.batch_size * (2 if self.doubled else 1)


@dataclass
class MoreArguments(Arguments):
    """Its constructor does not call that of Arguments."""

    rate: float = 1e-4


class Fit:
    def __init__(self, arguments: Arguments, momentum: float = 0.0) -> None:
        assert momentum < 1, f"momentum {momentum}"
        self.arguments, self.momentum = arguments, momentum

    def run(self, epochs: int) -> None:
        data = TensorDataset(torch.randn(512, 4), torch.randn(512, 1))
        loader = DataLoader(data, batch_size=self.arguments.samples)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=self.momentum)
        for _ in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()


def report(fit: Fit, mark: str = "-") -> None:
    print(mark, fit.arguments.samples, fit.momentum)
