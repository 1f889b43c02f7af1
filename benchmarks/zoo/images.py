"""Write a folder of made-up JPEG images, one folder for each class, for scripts that read files."""

import random
import sys
from pathlib import Path

from PIL import Image

CLASSES = ("red", "green", "blue")
IMAGES = 300
SIDE = 96


def write(folder: Path) -> None:
    """Write `IMAGES` images of each class; the class is the colour that prevails."""
    draw = random.Random(0)
    for channel, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(IMAGES):
            pixels = bytearray(draw.randbytes(SIDE * SIDE * 3))
            pixels[channel::3] = bytes(SIDE * SIDE * [200])
            Image.frombytes("RGB", (SIDE, SIDE), bytes(pixels)).save(
                folder / name / f"{number}.jpg"
            )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
