"""Trains with the fault in its loop that its argument names, or with none."""

import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

FAULT = sys.argv[1]
BATCH, WIDTH = (
    32,
    {"clean plain": 2048, "clean compiled": 2048, "clean images": 64, "small operators": 16}.get(
        FAULT, 512
    ),
)
torch.set_num_threads(1)


class Decoded(Dataset):
    """Images that are decoded each time that one is needed."""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        torch.randn(5_000).sort()  # decodes
        return torch.ones(WIDTH), index % 10


class Mean(nn.Module):
    def forward(self, words):
        return words.mean(dim=1)


def sentences(shortest):
    lengths = torch.randint(shortest, 101, (256,)).tolist()
    return [(torch.randint(1, 1000, (length,)), length % 10) for length in lengths]


def padded(samples):
    words, labels = zip(*samples, strict=True)
    return pad_sequence(words, batch_first=True), torch.tensor(labels)


layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
data, collate = TensorDataset(torch.randn(512, WIDTH), torch.randint(0, 10, (512,))), None
if FAULT == "slow data":
    data = Decoded()
elif FAULT in ("padding", "clean sentences"):
    layers = [nn.Embedding(1000, WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU(), Mean()]
    data, collate, BATCH = sentences(1 if FAULT == "padding" else 100), padded, 8
elif FAULT == "small operators":
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(60)]
elif FAULT == "clean images":
    data = TensorDataset(torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,)))
    layers = [
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3),
        nn.Flatten(),
        nn.LazyLinear(WIDTH),
    ]
model = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
run = model
if FAULT in ("recompilation", "clean compiled"):
    run = torch.compile(model, backend="eager")

log = open("log.txt", "w")  # noqa: PTH123, SIM115 - as people write it
step, history = 0, []
for epoch in range(1000):
    for x, y in DataLoader(
        data, batch_size=BATCH, shuffle=True, collate_fn=collate, drop_last=True
    ):
        step += 1
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(run(x), y)
        loss.backward()
        optimizer.step()
        if FAULT == "reading":
            norms = [weight.grad.norm().item() for weight in model.parameters()]
        elif FAULT == "writing":
            torch.save(model.state_dict(), "latest.pt")
        elif FAULT == "printing" and step % 2:
            print(step, *model[0].weight[:8].flatten().tolist(), file=log)
        elif FAULT == "growing":
            history.append(loss)
        elif FAULT == "uneven" and step % 8 == 0:
            for _ in range(60):
                model[0].weight.detach() @ model[0].weight.detach()
        elif FAULT == "recompilation":
            torch.compiler.reset()
        elif step % 50 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.3f}")
