"""Sounds told apart by a recurrent network: steps that wait for each other, samples that are work.

Each sample is one second of a chirp that rises or falls, in noise, made up once from a seed; when
it is asked for, its spectrogram is computed. A GRU reads it slice by slice, so that a step is a
long row of small operations, none of which can begin before the one before it is over.

What it teaches: with little to do at a time, larger batches are nearly free and a second thread is
little help there; the spectrograms are what workers may do meanwhile.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

BASELINE = {"batch_size": 32, "num_workers": 0}

CLASSES, RATE, SOUNDS, HELD_OUT = 8, 8000, 3_000, 500
WINDOW, STRIDE = 256, 128


class ChirpGRU(nn.Module):
    """A GRU over the slices of a spectrogram; its last state scores 8 kinds of chirps."""

    def __init__(self) -> None:
        super().__init__()
        self.compress = nn.Linear(WINDOW // 2 + 1, 64)
        self.recurrent = nn.GRU(64, 96, batch_first=True)
        self.scores = nn.Linear(96, CLASSES)

    def forward(self, spectrograms: Tensor) -> Tensor:
        """Scores (batch, 8) of spectrograms (batch, 63, 129)."""
        _, last = self.recurrent(functional.gelu(self.compress(spectrograms)))
        return self.scores(last[0])


def build_model() -> nn.Module:
    """The network that is tuned."""
    return ChirpGRU()


def build_dataset() -> Dataset:
    """The training sounds as (spectrogram, kind)."""
    return Chirps(range(HELD_OUT, SOUNDS))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy of a batch: spectrograms (batch, 63, 129) and kinds (batch,)."""
    spectrograms, kinds = batch
    return functional.cross_entropy(model(spectrograms), kinds)


class Chirps(Dataset):
    """Sounds by their number; the same number is always the same sound."""

    def __init__(self, numbers: range) -> None:
        self.numbers, self.window = numbers, torch.hann_window(WINDOW)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        number = self.numbers[index]
        random = torch.Generator().manual_seed(number)
        kind, times = number % CLASSES, torch.arange(RATE) / RATE
        first, rise = 400 + 150 * (kind // 2), 300 if kind % 2 else -300
        tone = torch.sin(2 * math.pi * (first * times + rise / 2 * times**2))
        sound = tone + 2 * torch.randn(RATE, generator=random)
        bins = torch.stft(sound, WINDOW, STRIDE, window=self.window, return_complex=True)
        return bins.abs().log1p().T, kind
