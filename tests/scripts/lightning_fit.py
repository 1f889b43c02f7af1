"""Lightning's Trainer on a module of a few lines, with a validation loader beside."""

import sys
import time

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
FIRST = 40


class Sums(Dataset):
    def __init__(self, samples: int) -> None:
        self.x = torch.randn(samples, 4)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(SECONDS)  # the disk
        return self.x[index], self.x[index].sum(0, keepdim=True)


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


class Pace(lightning.Callback):
    """Says how fast training went once it had got going, without validation."""

    def __init__(self) -> None:
        self.seconds, self.steps, self.last = 0.0, 0, None

    def on_validation_start(self, trainer, module):
        self.last = None

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        now = time.perf_counter()
        if trainer.global_step > FIRST and self.last is not None:
            self.seconds, self.steps = self.seconds + now - self.last, self.steps + 1
        self.last = now

    def on_train_end(self, trainer, module):
        if self.steps:
            print(f"{8 * self.steps / self.seconds:.2f} samples/s", file=sys.stderr)


def loader(samples: int, batch_size: int) -> DataLoader:
    return DataLoader(Sums(samples), batch_size=batch_size)


trainer = lightning.Trainer(
    max_steps=int(sys.argv[2]),
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=sys.argv[1],
    callbacks=[Pace()],
)
trainer.fit(Line(), loader(1024, 8), loader(64, 32))
