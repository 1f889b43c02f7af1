"""ResNet-50 on images of 224 x 224 pixels, with a thousand scores: the shape of ImageNet.

Ten of the thousand classes occur, and the 2,048 images fit into 300 MB.
"""

import os

import torch
from made_images import CLASSES, Images, Scaled, accuracy, as_batch, tiny_network
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models import resnet50

SMALL = bool(os.getenv("KIT_SMOKE"))  # tiny shapes, for a machine without a GPU

BASELINE = {"batch_size": 4 if SMALL else 64, "num_workers": 0}

PIXELS = 16 if SMALL else 224
TRAINING, HELD_OUT = (64, 8) if SMALL else (2_048, 256)
collate_fn = as_batch


def build_model() -> nn.Module:
    """Return torchvision's network of that name, freshly initialised."""
    return Scaled(tiny_network(CLASSES) if SMALL else resnet50(num_classes=1000))


def build_dataset() -> Images:
    """Return 2,048 training images."""
    return Images(TRAINING, PIXELS, seed=0)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the cross entropy of images (batch, 3, 224, 224) as bytes and labels (batch,)."""
    return loss_of(model(batch[0]), batch[1])


def loss_of(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of the network's scores."""
    return functional.cross_entropy(scores, labels)


def evaluate(model: nn.Module, device: torch.device) -> float:
    """Return the accuracy on held-out images, 0 to 1."""
    held_out = Images(HELD_OUT, PIXELS, seed=1)
    return accuracy(model, held_out, BASELINE["batch_size"], device)
