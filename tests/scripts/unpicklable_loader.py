"""Its workers would have to be sent a function that cannot be sent."""

import multiprocessing

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    data = TensorDataset(torch.randn(64, 4))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        data, batch_size=8, collate_fn=lambda samples: torch.stack([x for (x,) in samples])
    )
    for _ in range(1000):
        for x in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
