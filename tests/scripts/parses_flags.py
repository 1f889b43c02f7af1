"""A training script whose parser is named first: argparse, hf, click, json, hydra, tyro or own."""

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(batch_size: int, epochs: int, pin: bool = False) -> None:
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=batch_size, pin_memory=pin)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    Path("runs").mkdir(exist_ok=True)
    unnamed = tempfile.TemporaryFile()  # noqa: SIM115 - which overwrites nothing
    unnamed.write(b"x")
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), "runs/last.pt")
        Path("log.txt").write_text(f"{epoch} pinned {pin}\n")
        print(f"epoch {epoch} loss {loss.item():.4f}")


def by_argparse(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    group = parser.add_argument_group("training")
    group.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--val-batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--token", default="planted-hunter2")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--pin", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args(words)
    train(args.batch_size, args.epochs, args.pin)


class HfArgumentParser(argparse.ArgumentParser):
    """As that of transformers: it parses what it knows, and refuses the rest itself."""

    def parse_args_into_dataclasses(self, words: list[str]) -> argparse.Namespace:
        namespace, rest = self.parse_known_args(words)
        if rest:
            raise ValueError(f"Some specified arguments are not used: {rest}")
        return namespace


def by_hf(words: list[str]) -> None:
    parser = HfArgumentParser()
    parser.add_argument("--per_device_train_batch_size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args_into_dataclasses(words)
    train(args.per_device_train_batch_size, args.epochs)


def by_click(words: list[str]) -> None:
    import click

    @click.command()
    @click.option("--bs", type=int, default=16)
    @click.option("--epochs", type=int, default=1)
    def main(bs: int, epochs: int) -> None:
        train(bs, epochs)

    main(words)


def by_json(words: list[str]) -> None:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser()
    parser.add_argument("--data.batch_size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args(words)
    train(args.data.batch_size, args.epochs)


def by_hydra(words: list[str]) -> None:
    import hydra

    folder = Path("conf").absolute()
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text("train:\n  batch_size: 16\n  epochs: 1\n")
    sys.argv[1:] = words

    @hydra.main(version_base=None, config_path=str(folder), config_name="config")
    def main(config: SimpleNamespace) -> None:
        train(config.train.batch_size, config.train.epochs)

    main()


@dataclass
class Train:
    batch_size: int = 16
    note: str = "planted-hunter2"


@dataclass
class Settings:
    train: Train = field(default_factory=Train)
    epochs: int = 1


def by_tyro(words: list[str]) -> None:
    import tyro

    settings = tyro.cli(Settings, args=words)
    train(settings.train.batch_size, settings.epochs)


def by_own(words: list[str]) -> None:
    values = dict(word.split("=") for word in words)
    train(int(values.get("size", 16)), int(values.get("epochs", 1)))


if __name__ == "__main__":
    kinds = (by_argparse, by_hf, by_click, by_json, by_hydra, by_tyro, by_own)
    ways = {kind.__name__: kind for kind in kinds}
    ways[f"by_{sys.argv[1]}"](sys.argv[2:])
