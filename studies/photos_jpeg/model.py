"""JPEG photographs, decoded and augmented while training: the loader is the bottleneck.

scikit-learn ships two photographs, a temple and a flower. Many crops of both are kept as JPEG
bytes, as files on disk would be; `__getitem__` decodes one and augments it with torchvision. The
network says which photograph a crop is from, and from which part.

What it teaches: where loading takes longer than computing, a faster precision helps little.
num_workers does, and where cores are few, num_threads along with it.
"""

from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from random import Random

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset
from torchvision.models import shufflenet_v2_x0_5
from torchvision.transforms import v2

BASELINE = {"batch_size": 64, "num_workers": 0}
PHOTOS = Path(str(find_spec("sklearn").origin)).parent / "datasets" / "images"
CROPS, DRAWS = 400, 10  # an epoch has each crop so often, augmented differently
CROP_SIZE = 512
PHOTO_SIZE = WIDTH, HEIGHT = (1280, 854)  # twice the original, so that crops differ
ROWS, COLUMNS = 2, 3


def build_model() -> nn.Module:
    """ShuffleNet from torchvision, freshly initialised, with one score per photo and part."""
    return shufflenet_v2_x0_5(num_classes=2 * ROWS * COLUMNS)


def build_dataset() -> Dataset:
    """Crops of both photographs at random places, the same ones in every trial."""
    random = Random(0)
    photos = [Image.open(PHOTOS / name).resize(PHOTO_SIZE) for name in ("china.jpg", "flower.jpg")]
    return JpegCrops([cut_crop(photos, random) for _ in range(CROPS)])


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy of a batch: images (batch, 3, 64, 64) and labels (batch,)."""
    return functional.cross_entropy(model(batch[0]), batch[1])


class JpegCrops(Dataset):
    """Labelled JPEG images, decoded and augmented anew each time one is asked for."""

    def __init__(self, crops: list[tuple[bytes, int]]) -> None:
        self.crops = crops
        self.augment = v2.Compose(
            [
                v2.RandomResizedCrop(64, scale=(0.3, 1.0)),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self) -> int:
        return DRAWS * CROPS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        jpeg, label = self.crops[index % CROPS]
        return self.augment(Image.open(BytesIO(jpeg)).convert("RGB")), label


def cut_crop(photos: list[Image.Image], random: Random) -> tuple[bytes, int]:
    """One crop as JPEG bytes, and its label: which photo, row and column it was cut from."""
    photo, right, down = random.randrange(len(photos)), random.random(), random.random()
    x, y = int(right * (WIDTH - CROP_SIZE)), int(down * (HEIGHT - CROP_SIZE))
    jpeg = BytesIO()
    photos[photo].crop((x, y, x + CROP_SIZE, y + CROP_SIZE)).save(jpeg, "JPEG", quality=90)
    return jpeg.getvalue(), (photo * ROWS + int(down * ROWS)) * COLUMNS + int(right * COLUMNS)
