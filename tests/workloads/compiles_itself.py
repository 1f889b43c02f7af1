"""Its loss is compiled by itself, first as the model is built, and again after a while."""

import recompiles
import torch
from plain import BASELINE, build_dataset, build_optimizer  # noqa: F401

compiled_loss = torch.compile(recompiles.loss_of, backend="eager")


def build_model():
    model = recompiles.build_model()
    compiled_loss(model, (torch.zeros(8, 8), torch.zeros(8, dtype=torch.int64)))
    return model


def compute_loss(model, batch):
    recompiles.change_after_a_while(model)
    return compiled_loss(model, batch)
