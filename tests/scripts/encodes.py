"""Calls an encoder and a decoder, of which it compiles the second."""

import torch
from torch import nn

encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
decoder.compile(backend="eager")
optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.01)
for _ in range(100_000):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    nn.functional.mse_loss(decoder(encoder(x)), x).backward()
    optimizer.step()
