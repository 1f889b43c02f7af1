"""Hugging Face's Trainer on a model and a dataset of a few lines."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
FIRST = 40


class Lines(Dataset):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(SECONDS)  # the disk
        return {"x": torch.full((4,), index / 4096), "labels": torch.tensor([index / 1024])}


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.layer(x)
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}


class Pace(TrainerCallback):
    """Says how fast it went once it had got going."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == FIRST:
            self.start = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        if (steps := state.global_step - FIRST) > 0:
            pace = 8 * steps / (time.perf_counter() - self.start)
            print(f"{pace:.2f} samples/s", file=sys.stderr)


arguments = TrainingArguments(
    output_dir=sys.argv[1],
    max_steps=int(sys.argv[2]),
    per_device_train_batch_size=8,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
    use_cpu=True,
)
Trainer(model=Line(), args=arguments, train_dataset=Lines(), callbacks=[Pace()]).train()
