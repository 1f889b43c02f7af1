"""Two models and two optimizers, which step in turns; the critic twice for each generator step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
of_critic = torch.optim.Adam(critic.parameters())
of_generator = torch.optim.Adam(generator.parameters())
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=16)
for _ in range(100_000):
    for (real,) in loader:
        for _ in range(2):
            of_critic.zero_grad()
            fake = generator(torch.randn(len(real), 2)).detach()
            (critic(fake).mean() - critic(real).mean()).backward()
            of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(torch.randn(len(real), 2))).mean()).backward()
        of_generator.step()
