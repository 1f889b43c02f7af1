"""A training script that takes its batch size in each way that scripts do."""

import json
import os
import sys
from pathlib import Path

import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def batch_size(words: list[str]) -> int:
    for place, word in enumerate(words):
        if word == "--config":
            with Path(words[place + 1]).open() as file:
                return yaml.safe_load(file)["train"]["batch_size"]
        if word.endswith(".json"):
            with Path(word).open() as file:
                return json.load(file)["train"]["batch_size"]
        if word.startswith(("train.batch_size=", "--batch_size=")):
            return int(word.partition("=")[2])
        if word == "--large":
            return 64
    return int(os.environ.get("BATCH_SIZE", "16"))


def main() -> None:
    data = TensorDataset(torch.randn(512, 4), torch.randn(512, 1))
    size, pinned = batch_size(sys.argv[1:]), "--no-pin" not in sys.argv
    loader = DataLoader(data, batch_size=size, pin_memory=pinned and "--pin" in sys.argv)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(10000 if "forever" in sys.argv else 2):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        with Path("last.txt").open("w") as file:
            file.write(str(size))
    print(sys.argv, file=sys.stderr)
    print(f"batch size {size}, pinned {loader.pin_memory}", file=sys.stderr)


if __name__ == "__main__":
    main()
