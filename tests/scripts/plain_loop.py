"""A training script as a person writes it: two loaders, arguments, no thought of being tuned."""

import argparse
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Images(Dataset):
    """Noise that lies on a disk, which takes its time."""

    def __init__(self, samples: int, seconds: float) -> None:
        self.images = torch.randn(samples, 3, 8, 8)
        self.labels = self.images.mean(dim=(1, 2, 3)).gt(0).long()
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(self.seconds)
        return self.images[index], self.labels[index]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--read-seconds", type=float, default=0.0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    data = Images(args.samples, args.read_seconds)
    train = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    held_out = TensorDataset(data.images[:32], data.labels[:32])
    val = DataLoader(held_out, batch_size=args.batch_size)

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    paces = []
    for epoch in range(args.epochs):
        start = time.perf_counter()
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            logits = model(x)
            assert logits.dtype == torch.float32
            nn.functional.cross_entropy(logits, y).backward()
            optimizer.step()
        paces.append(args.samples / (time.perf_counter() - start))
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in val)
        print(f"epoch {epoch} accuracy {right / 32:.3f}")
    print(f"{sum(paces[1:]) / max(1, len(paces) - 1):.2f} samples/s", file=sys.stderr)
    print(f"batch size {train.batch_size}, workers {train.num_workers}", file=sys.stderr)


if __name__ == "__main__":
    main()
