"""The examples as a training script: `python studies/train.py digits_cnn --epochs 3`.

It is what `autotune search studies/train.py -- digits_cnn` searches: a plain loop that knows of no
tuning. Model, data and loss are those of the example's `model.py`.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

import torch
from torch.utils.data import DataLoader


def main() -> None:
    """Train an example for some epochs and print its mean loss after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("example")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    sys.path.insert(0, str(Path(__file__).parent / args.example))
    example = import_module("model")
    size = args.batch_size or example.BASELINE["batch_size"]
    loader = DataLoader(example.build_dataset(), batch_size=size, shuffle=True, drop_last=True)
    model = example.build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = example.compute_loss(model, batch)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
