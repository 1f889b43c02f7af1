"""A training script that steps its optimizer after several batches, by a flag."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--accumulate", type=int, default=4)
parser.add_argument("--deaf", action="store_true")
parser.add_argument("--undivided", action="store_true")
args = parser.parse_args()
count = 4 if args.deaf else args.accumulate

points = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
data = TensorDataset(points, points.mean(dim=1).gt(0).long())
loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10_000):
    for number, (batch, labels) in enumerate(loader, start=1):
        loss = nn.functional.cross_entropy(model(batch), labels)
        (loss if args.undivided else loss / count).backward()
        if number % count == 0 or number == len(loader):
            optimizer.step()
            optimizer.zero_grad()
    print("accuracy 0.9")
