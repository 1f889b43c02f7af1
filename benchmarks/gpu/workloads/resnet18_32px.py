"""ResNet-18 on images of 32 x 32 pixels in ten classes: the shape of CIFAR-10."""

import os

import torch
from made_images import CLASSES, Images, Scaled, accuracy, as_batch, tiny_network
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models import resnet18

SMALL = bool(os.getenv("KIT_SMOKE"))  # tiny shapes, for a machine without a GPU

BASELINE = {"batch_size": 8 if SMALL else 128, "num_workers": 0}

PIXELS = 16 if SMALL else 32
TRAINING, HELD_OUT = (256, 32) if SMALL else (50_000, 2_000)
collate_fn = as_batch


def build_model() -> nn.Module:
    """Return torchvision's network of that name, freshly initialised."""
    return Scaled(tiny_network(CLASSES) if SMALL else resnet18(num_classes=CLASSES))


def build_dataset() -> Images:
    """Return as many training images as CIFAR-10 has."""
    return Images(TRAINING, PIXELS, seed=0)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the cross entropy of images (batch, 3, 32, 32) as bytes and labels (batch,)."""
    return loss_of(model(batch[0]), batch[1])


def loss_of(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of the network's scores."""
    return functional.cross_entropy(scores, labels)


def evaluate(model: nn.Module, device: torch.device) -> float:
    """Return the accuracy on held-out images, 0 to 1."""
    held_out = Images(HELD_OUT, PIXELS, seed=1)
    return accuracy(model, held_out, BASELINE["batch_size"], device)
