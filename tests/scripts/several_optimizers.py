"""Trains with several optimizers in the way that its argument names."""

import itertools
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WAY = sys.argv[1]
torch.manual_seed(0)


def gan_on_tensors():
    generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
    of_critic, of_generator = (torch.optim.Adam(m.parameters()) for m in (critic, generator))
    while True:
        real, noise = torch.randn(16, 4) + 3, torch.randn(16, 2)
        update(of_critic, critic(generator(noise).detach()).mean() - critic(real).mean())
        update(of_generator, -critic(generator(noise)).mean())


def gan_on_batches_in_turn():
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    of_critic, of_generator = (torch.optim.Adam(m.parameters()) for m in (critic, generator))
    loader = DataLoader(TensorDataset(torch.randn(64, 4) + 3), batch_size=16)
    while True:
        for number, (batch,) in enumerate(loader):
            if number % 2 == 0:
                fake = generator(torch.randn(16, 4)).detach()
                update(of_critic, critic(fake).mean() - critic(batch).mean())
            else:
                update(of_generator, -critic(generator(batch)).mean())


def actor_critic():
    actor, critic = nn.Linear(4, 2), nn.Linear(6, 1)
    of_critic, of_actor = (torch.optim.Adam(m.parameters()) for m in (critic, actor))
    states, actions = torch.randn(1000, 4), torch.randn(1000, 2)
    rewards = states.sum(1, keepdim=True)
    while True:
        drawn = torch.randint(1000, (16,))
        found = critic(torch.cat([states[drawn], actions[drawn]], 1))
        update(of_critic, nn.functional.mse_loss(found, rewards[drawn]))
        update(of_actor, -critic(torch.cat([states[drawn], actor(states[drawn])], 1)).mean())


def one_loss():
    """The second one steps on every other batch alone, and before the first one then."""
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    first = torch.optim.SGD(model[0].parameters(), lr=0.05)
    second = torch.optim.AdamW(model[2].parameters(), lr=0.01)
    number = 0
    while True:
        inputs = torch.randn(64, 4)
        nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)).backward()
        number += 1
        for optimizer in (second, first) if number % 2 == 0 else (first,):
            optimizer.step()
            optimizer.zero_grad()


def one_after_the_other():
    """A second one takes the first one's place."""
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.05)
    number = 0
    while True:
        if number == 5:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        inputs = torch.randn(64, 4)
        update(optimizer, nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)))
        number += 1


def unfrozen(what):
    """Trains the head, then all layers with another optimizer, while the first one does `what`."""
    body, head = nn.Linear(4, 4), nn.Linear(4, 1)
    model = nn.Sequential(body, head)
    body.requires_grad_(False)
    optimizer = first = torch.optim.AdamW(head.parameters())
    data = TensorDataset(torch.randn(640, 4), torch.randn(640, 1))
    batches = itertools.chain.from_iterable(DataLoader(data, batch_size=16) for _ in range(20))
    for step, (x, y) in enumerate(batches):
        if step == 5:
            body.requires_grad_(True)
            parameters = body.parameters() if what == "idles" else model.parameters()
            optimizer = torch.optim.AdamW(parameters)
            if what == "gone":
                del first
        update(optimizer, nn.functional.mse_loss(model(x), y))


def models(are_folds):
    """Trains models one after the other, for an epoch each, or two of them on each batch."""
    data = TensorDataset(torch.randn(320, 4), torch.randn(320, 1))
    loader = DataLoader(data, batch_size=16)

    def built():
        model = nn.Linear(4, 1)
        return model, torch.optim.SGD(model.parameters(), lr=0.01)

    pairs = [built(), built()]
    while True:
        if are_folds:
            pairs = [built()]
        for x, y in loader:
            for model, optimizer in pairs:
                update(optimizer, nn.functional.mse_loss(model(x), y))


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


{
    "tensors": gan_on_tensors,
    "batches": gan_on_batches_in_turn,
    "actor-critic": actor_critic,
    "one loss": one_loss,
    "one after the other": one_after_the_other,
    "kept": lambda: unfrozen("kept"),
    "gone": lambda: unfrozen("gone"),
    "idles": lambda: unfrozen("idles"),
    "folds": lambda: models(are_folds=True),
    "models alternately": lambda: models(are_folds=False),
}[WAY]()
