"""Trains a model of timm's on timm's data, by the flags of timm's train.py that a preset names."""

import argparse

import torch
from PIL import Image
from timm import create_model
from timm.data import create_dataset, create_loader
from timm.optim import create_optimizer_v2

parser = argparse.ArgumentParser()
parser.add_argument("--data-dir", required=True)
parser.add_argument("-b", "--batch-size", type=int, default=4)
parser.add_argument("--grad-accum-steps", type=int, default=1)
args = parser.parse_args()
for number in range(32):
    folder = f"class{number % 2}"
    Image.new("RGB", (32, 32), (8 * number, 99, 9)).save(f"{args.data_dir}/{folder}/{number}.png")

data = create_dataset("", root=args.data_dir, is_training=True)
loader = create_loader(
    data,
    input_size=(3, 32, 32),
    batch_size=args.batch_size,
    is_training=True,
    num_workers=0,
    persistent_workers=False,
    use_prefetcher=False,
    device=torch.device("cpu"),
)
model = create_model("test_efficientnet", num_classes=2)
optimizer = create_optimizer_v2(model, opt="sgd", lr=0.01)
steps = 0
for number, (images, labels) in enumerate(loader, 1):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    (loss / args.grad_accum_steps).backward()
    if number % args.grad_accum_steps == 0:
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
print(f"trained on {len(images)} images {number} times in {steps} steps")
