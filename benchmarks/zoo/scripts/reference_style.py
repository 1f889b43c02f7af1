"""Train a torchvision model as its reference scripts do: presets, an average model, a log."""

import argparse
import time
from pathlib import Path

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, RandomSampler
from torchvision.transforms import v2


def get_args_parser():
    parser = argparse.ArgumentParser(description="Classification")
    parser.add_argument("--data-path", required=True)
    parser.add_argument("--model", default="mobilenet_v3_small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-b", "--batch-size", default=16, type=int)
    parser.add_argument("--epochs", default=40, type=int)
    parser.add_argument("-j", "--workers", default=2, type=int)
    parser.add_argument("--lr", default=0.01, type=float)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--model-ema", action="store_true")
    parser.add_argument("--output-dir", default="")
    return parser


def train_one_epoch(model, criterion, optimizer, loader, device, epoch, args, model_ema, scaler):
    model.train()
    start, seen = time.time(), 0
    for i, (image, target) in enumerate(loader):
        image, target = image.to(device), target.to(device)
        with torch.autocast(device.type, enabled=scaler is not None):
            loss = criterion(model(image), target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        if model_ema is not None and i % 32 == 0:
            model_ema.update_parameters(model)
        seen += len(image)
    print(f"epoch {epoch} loss {loss.item():.4f} img/s {seen / (time.time() - start):.1f}")


def main(args):
    device = torch.device(args.device)
    transforms = v2.Compose(
        [
            v2.PILToTensor(),
            v2.RandomResizedCrop(64, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    dataset = torchvision.datasets.ImageFolder(args.data_path, transforms)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=RandomSampler(dataset),
        num_workers=args.workers,
        pin_memory=False,
    )
    model = torchvision.models.get_model(args.model, num_classes=len(dataset.classes)).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)
    scaler = torch.amp.GradScaler(device.type) if args.amp else None
    average = torch.optim.swa_utils.AveragedModel(model) if args.model_ema else None
    for epoch in range(args.epochs):
        train_one_epoch(model, criterion, optimizer, loader, device, epoch, args, average, scaler)
        scheduler.step()
        if args.output_dir:
            torch.save(model.state_dict(), Path(args.output_dir) / "checkpoint.pth")


if __name__ == "__main__":
    main(get_args_parser().parse_args())
