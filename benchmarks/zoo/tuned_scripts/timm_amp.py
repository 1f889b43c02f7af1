"""Train a model of timm on a folder of images, with AMP, channels_last and two workers.

With `--mistake` it holds torch to one thread.
"""

import argparse

import torch
from timm.data import create_dataset, create_loader, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy
from timm.models import create_model
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--mistake", action="store_true")
    args = parser.parse_args()
    if args.mistake:
        torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = create_model("resnet10t", num_classes=3)
    model.to(device, memory_format=torch.channels_last)
    config = resolve_data_config({"input_size": (3, 64, 64)}, model=model)
    loader = create_loader(
        create_dataset("", root=args.data_dir),
        input_size=config["input_size"],
        batch_size=16,
        is_training=True,
        no_aug=True,
        use_prefetcher=False,
        num_workers=2,
        pin_memory=False,
        persistent_workers=True,
    )
    loss_fn = LabelSmoothingCrossEntropy()
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    scheduler = CosineLRScheduler(optimizer, t_initial=args.epochs)
    for epoch in range(args.epochs):
        model.train()
        for images, targets in loader:
            images = images.to(device, memory_format=torch.channels_last)
            targets = targets.to(device)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16):
                loss = loss_fn(model(images), targets)
            loss.backward()
            optimizer.step()
        scheduler.step(epoch + 1)
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
