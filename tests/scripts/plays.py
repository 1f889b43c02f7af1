"""Plays episodes of different lengths with its model and learns after each, without a loader."""

import random

import torch
from torch import nn

policy = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)

while True:
    state, log_probabilities = torch.zeros(1, 4), []
    for _ in range(random.randint(4, 40)):
        choice = torch.distributions.Categorical(logits=policy(state))
        action = choice.sample()
        log_probabilities.append(choice.log_prob(action))
        state = state + 0.1 * (action - 0.5)
    loss = -torch.cat(log_probabilities).sum() / len(log_probabilities)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
