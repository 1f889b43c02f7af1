"""Synthetic images in the shapes of published benchmarks, for the networks of this folder.

An image is a coarse pattern of its class, shifted, under noise that is three times as strong. A
tenth of the labels is wrong, so that the accuracy stays below 1. Images are bytes, as on disk, and
the network scales them itself. One indexing operation makes a batch (`__getitems__`).
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

CLASSES = 10
WRONG_LABELS = 0.1


class Images(Dataset):
    """Labelled images in memory, the same ones in every process."""

    def __init__(self, samples: int, pixels: int, seed: int) -> None:
        random = torch.Generator().manual_seed(1234)
        coarse = torch.randint(0, 40, (CLASSES, 3, 4, 4), generator=random, dtype=torch.uint8)
        patterns = coarse.repeat_interleave(pixels // 4, 2).repeat_interleave(pixels // 4, 3)
        shifts = torch.stack([patterns.roll((s, s), (2, 3)) for s in range(4)])
        random.manual_seed(seed)
        noise = bytearray(np.random.default_rng(seed).bytes(samples * 3 * pixels * pixels))
        self.images = torch.frombuffer(noise, dtype=torch.uint8).view(samples, 3, pixels, pixels)
        self.images >>= 1
        classes = torch.randint(CLASSES, (samples,), generator=random)
        shift = torch.randint(len(shifts), (samples,), generator=random)
        for first in range(0, samples, 1024):  # all patterns at once would take too much memory
            part = slice(first, first + 1024)
            self.images[part] += shifts[shift[part], classes[part]]
        wrong = torch.rand(samples, generator=random) < WRONG_LABELS
        others = torch.randint(CLASSES, (samples,), generator=random)
        self.labels = torch.where(wrong, others, classes)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        places = torch.tensor(indices)
        return self.images[places], self.labels[places]


class Scaled(nn.Module):
    """A network that first scales bytes to numbers from -1 to 1."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("middle", torch.tensor(127.5))

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the classes, shape (batch, classes)."""
        return self.network(images.to(self.middle.dtype) / self.middle - 1)


def tiny_network(classes: int) -> nn.Module:
    """Return a small network for smoke runs."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(128, classes)
    )


def as_batch(samples: object) -> object:
    """Return a batch as it is, and collate single samples into one."""
    return default_collate(samples) if isinstance(samples, list) else samples


def accuracy(model: nn.Module, images: Images, batch_size: int, device: torch.device) -> float:
    """Return the share of images whose class has the highest score, 0 to 1."""
    right = 0
    with torch.no_grad():
        for places in torch.arange(len(images)).split(batch_size):
            batch, labels = images.__getitems__(places.tolist())
            right += (model(batch.to(device)).argmax(1).cpu() == labels).sum().item()
    return right / len(images)
