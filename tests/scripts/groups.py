"""A group for each parameter, with a scheduler, in a deterministic mode that only warns."""

import gc
import itertools
import sys

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1))
    groups = [{"params": [weight], "name": name} for name, weight in model.named_parameters()]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    scheduler = LambdaLR(optimizer, [lambda step: 1 / (1 + step)] * len(groups))
    own = optimizer.param_groups
    loader = DataLoader(TensorDataset(torch.arange(128.0).view(32, 4)), batch_size=16)
    epochs = itertools.count() if "forever" in sys.argv else range(20)
    for (x,) in (batch for _ in epochs for batch in loader):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        scheduler.step()
        assert optimizer.param_groups is own
        assert [group["name"] for group in own] == [name for name, _ in model.named_parameters()]
    fills = torch.utils.deterministic.fill_uninitialized_memory
    print(gc.isenabled(), fills, model(torch.ones(1, 4)).item())


if __name__ == "__main__":
    main()
