"""Train a model of timm on a folder of images, with its data pipeline, loss and optimizer."""

import argparse

import torch
from timm.data import create_dataset, create_loader, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy
from timm.models import create_model
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch import nn


class Task(nn.Module):
    """The model and its loss in one module, which the loop calls."""

    def __init__(self, model, loss_fn):
        super().__init__()
        self.model, self.loss_fn = model, loss_fn

    def forward(self, images, targets):
        return self.loss_fn(self.model(images), targets)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--model", default="resnet10t")
    parser.add_argument("--batch-size", "-b", type=int, default=16)
    parser.add_argument("--workers", "-j", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--torchcompile", action="store_true")
    args = parser.parse_args()

    model = create_model(args.model, num_classes=3)
    config = resolve_data_config({"input_size": (3, 64, 64)}, model=model)
    loader = create_loader(
        create_dataset("", root=args.data_dir),
        input_size=config["input_size"],
        batch_size=args.batch_size,
        is_training=True,
        no_aug=True,
        use_prefetcher=False,
        num_workers=args.workers,
        pin_memory=False,
        persistent_workers=False,
    )
    task = Task(model, LabelSmoothingCrossEntropy())
    if args.torchcompile:
        task = torch.compile(task)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    scheduler = CosineLRScheduler(optimizer, t_initial=args.epochs)
    for epoch in range(args.epochs):
        model.train()
        for images, targets in loader:
            optimizer.zero_grad()
            loss = task(images, targets)
            loss.backward()
            optimizer.step()
        scheduler.step(epoch + 1)
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
