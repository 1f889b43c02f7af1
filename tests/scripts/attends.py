"""A script whose model attends to its tokens."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Attention(nn.Module):
    """Two heads of four numbers."""

    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(8, 24), nn.Linear(8, 1)

    def forward(self, tokens):
        query, key, value = self.project(tokens).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value)
        return self.out(found.transpose(1, 2).flatten(2)).mean(dim=(1, 2))


if __name__ == "__main__":
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(256, 6, 8)), batch_size=16)
    for _ in range(1000):
        for (tokens,) in loader:
            loss = (model(tokens) - tokens.mean(dim=(1, 2))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
