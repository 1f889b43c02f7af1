"""Trains by LightningCLI, with a data module whose batch size is a flag."""

import lightning
import torch
from lightning.pytorch.cli import LightningCLI
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Images(lightning.LightningDataModule):
    def __init__(self, batch_size: int = 4) -> None:
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        data = TensorDataset(torch.randn(32, 12), torch.randint(2, (32,)))
        return DataLoader(data, self.batch_size)


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 2)

    def training_step(self, batch, number):
        images, labels = batch
        self.seen = len(images), number + 1
        return nn.functional.cross_entropy(self.layer(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def on_train_end(self):
        size, number = self.seen
        print(f"trained on {size} images {number} times in {self.trainer.global_step} steps")


LightningCLI(Classifier, Images)
