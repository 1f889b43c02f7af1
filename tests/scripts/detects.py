"""Collates images and their boxes into tuples, in batches of a sampler of its own."""

import torch
from torch import nn
from torch.utils.data import DataLoader

images = [(torch.randn(3, 8, 8), {"boxes": torch.rand(2, 4)}) for _ in range(60)]
groups = [list(range(first, first + 12)) for first in range(0, 60, 12)]


def collate(samples):
    return tuple(zip(*samples, strict=True))


loader = DataLoader(images, batch_sampler=groups, collate_fn=collate)
model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(100_000):
    for pictures, targets in loader:
        boxes = torch.stack([target["boxes"].flatten() for target in targets])
        optimizer.zero_grad()
        nn.functional.l1_loss(model(torch.stack(pictures)), boxes).backward()
        optimizer.step()
