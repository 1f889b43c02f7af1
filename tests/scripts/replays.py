"""Learns by playing a world of its own, from a memory of its moves; a DataLoader may feed it."""

import random
import sys
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

memory = deque(maxlen=512)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
states = deque([torch.zeros(4)], maxlen=1)


def play():
    """Make a move, in one of four cases the model's own."""
    state = states[0]
    if random.random() < 0.25:
        with torch.no_grad():
            action = int(model(state[None]).argmax())
    else:
        action = random.randrange(2)
    after = 0.9 * state + 0.1 * torch.randn(4) + (action - 0.5)
    memory.append((state, action, -after.abs().sum(), after))
    states.append(after)


class Memory(IterableDataset):
    def __iter__(self):
        while True:
            play()
            yield random.choice(memory)


def batches():
    while True:
        play()
        moves = zip(*random.choices(memory, k=16), strict=True)
        yield [torch.as_tensor(x) if isinstance(x[0], int) else torch.stack(x) for x in moves]


is_fed = sys.argv[1] == "fed"
for now, action, reward, after in DataLoader(Memory(), batch_size=16) if is_fed else batches():
    with torch.no_grad():
        target = reward + 0.9 * model(after).max(dim=1).values
    value = model(now).gather(1, action[:, None])[:, 0]
    loss = nn.functional.smooth_l1_loss(value, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
