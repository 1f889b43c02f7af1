"""Trains by transformers' Trainer, whose arguments it reads by HfArgumentParser."""

import torch
from torch import nn
from transformers import HfArgumentParser, Trainer, TrainingArguments

(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
given: list[int] = []


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.layer(x)
        given.append(len(x))
        return {"loss": nn.functional.mse_loss(out.float(), labels)}


images = [{"x": torch.full((4,), n / 32), "labels": torch.ones(1)} for n in range(32)]
trainer = Trainer(model=Net(), args=arguments, train_dataset=images)
trainer.train()
print(f"trained on {given[-1]} images {len(given)} times in {trainer.state.global_step} steps")
