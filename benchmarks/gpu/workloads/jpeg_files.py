"""ResNet-18 at 160 pixels on JPEG files, which are read, decoded and augmented one by one.

The workload suits a machine with sixteen cores for decoding. Pillow writes the files once, into a
folder of the system's temporary one. An image is a coarse pattern of its class under noise.
"""

import os
import tempfile
from pathlib import Path
from random import Random

import torch
from made_images import tiny_network
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset
from torchvision.models import resnet18
from torchvision.transforms import v2

SMALL = bool(os.getenv("KIT_SMOKE"))  # tiny shapes, for a machine without a GPU

BASELINE = {"batch_size": 8 if SMALL else 64, "num_workers": 0 if SMALL else 4}

FILE_PIXELS, PIXELS = (64, 16) if SMALL else (400, 160)
FILES, DRAWS, HELD_OUT, CLASSES = (64, 4, 16, 4) if SMALL else (1024, 16, 256, 16)
FOLDER = Path(tempfile.gettempdir()) / f"kit-jpegs-{FILES}-{FILE_PIXELS}-{os.getuid()}"


def build_model() -> nn.Module:
    """Return torchvision's network, freshly initialised."""
    return tiny_network(CLASSES) if SMALL else resnet18(num_classes=CLASSES)


def build_dataset() -> Dataset:
    """Return all but the held-out files, each augmented anew every time."""
    return Photos(range(HELD_OUT, FILES), DRAWS)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the cross entropy of images (batch, 3, 160, 160) and labels (batch,)."""
    return loss_of(model(batch[0]), batch[1])


def loss_of(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of the network's scores."""
    return functional.cross_entropy(scores, labels)


def evaluate(model: nn.Module, device: torch.device) -> float:
    """Return the accuracy on the held-out files, 0 to 1."""
    held_out = Photos(range(HELD_OUT), 1)
    right = 0
    with torch.no_grad():
        for start in range(0, HELD_OUT, BASELINE["batch_size"]):
            stop = min(start + BASELINE["batch_size"], HELD_OUT)
            pairs = [held_out[place] for place in range(start, stop)]
            images = torch.stack([image for image, _ in pairs]).to(device)
            labels = torch.tensor([label for _, label in pairs])
            right += (model(images).argmax(1).cpu() == labels).sum().item()
    return right / HELD_OUT


class Photos(Dataset):
    """Files of the folder by number; the number modulo `CLASSES` is the class."""

    def __init__(self, numbers: range, draws: int) -> None:
        write_files()
        self.numbers, self.draws = numbers, draws
        self.augment = v2.Compose(
            [
                v2.RandomResizedCrop(PIXELS, scale=(0.3, 1.0)),
                v2.RandomHorizontalFlip(),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25]),
            ]
        )

    def __len__(self) -> int:
        return self.draws * len(self.numbers)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        number = self.numbers[index % len(self.numbers)]
        with Image.open(FOLDER / f"{number:05d}.jpg") as image:
            return self.augment(image.convert("RGB")), number % CLASSES


def write_files() -> None:
    """Write the files if they are missing; safe with several processes at once."""
    if FOLDER.is_dir():
        return
    unfinished = Path(tempfile.mkdtemp(dir=FOLDER.parent, prefix=f"{FOLDER.name}-"))
    for number in range(FILES):
        random = Random(number)
        side = FILE_PIXELS // 8
        noise = Image.frombytes("RGB", (side, side), random.randbytes(3 * side * side))
        pattern = Image.frombytes("RGB", (4, 4), Random(-1 - number % CLASSES).randbytes(48))
        whole = (FILE_PIXELS, FILE_PIXELS)
        image = Image.blend(noise.resize(whole), pattern.resize(whole), 0.4)
        image.save(unfinished / f"{number:05d}.jpg", quality=90)
    try:
        unfinished.rename(FOLDER)
    except OSError:  # another process was faster
        for file in unfinished.iterdir():
            file.unlink()
        unfinished.rmdir()
