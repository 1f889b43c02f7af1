"""A training script as a person writes it: two loaders, arguments, no thought of being tuned."""

import argparse
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    images = torch.randn(args.samples, 3, 8, 8)
    labels = images.mean(dim=(1, 2, 3)).gt(0).long()
    train = DataLoader(TensorDataset(images, labels), batch_size=args.batch_size, shuffle=True)
    val = DataLoader(TensorDataset(images[:32], labels[:32]), batch_size=args.batch_size)

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            logits = model(x)
            assert logits.dtype == torch.float32
            nn.functional.cross_entropy(logits, y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in val)
        print(f"epoch {epoch} accuracy {right / 32:.3f}")
    print(f"batch size {train.batch_size}, workers {train.num_workers}", file=sys.stderr)


if __name__ == "__main__":
    main()
