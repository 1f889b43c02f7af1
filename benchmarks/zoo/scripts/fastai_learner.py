"""Train a small vision model with fastai's Learner."""

import torch
from fastai.callback.all import *
from fastai.vision.all import CrossEntropyLossFlat, DataLoaders, Learner, accuracy
from torch import nn


class Shapes(torch.utils.data.Dataset):
    """Bars on noise: upright or lying."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image, label = torch.rand(1, 32, 32, generator=generator), index % 2
        place = int(torch.randint(32, (1,), generator=generator))
        if label:
            image[:, place] += 1
        else:
            image[:, :, place] += 1
        return image, torch.tensor(label)


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()
    )


model = nn.Sequential(
    block(1, 32),
    block(32, 64),
    block(64, 64),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 2),
)
loaders = DataLoaders.from_dsets(Shapes(6000), Shapes(500), bs=32, num_workers=0)
learner = Learner(loaders, model, loss_func=CrossEntropyLossFlat(), metrics=accuracy)
learner.fit_one_cycle(20, 3e-3)
