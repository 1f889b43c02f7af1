"""Lightning's Trainer on a module of a few lines, with a validation loader beside."""

import sys

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Line(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.mse_loss(self.layer(x), y)

    def validation_step(self, batch, index):
        self.log("loss", self.training_step(batch, index))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def loader(samples: int, batch_size: int) -> DataLoader:
    x = torch.randn(samples, 4)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=batch_size)


trainer = lightning.Trainer(
    max_steps=int(sys.argv[2]),
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=sys.argv[1],
)
trainer.fit(Line(), loader(1024, 8), loader(64, 32))
