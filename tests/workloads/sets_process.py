"""Sets up the process when it is imported, as many scripts do; BASELINE takes one of it back."""

import torch
from plain import build_dataset, build_model, compute_loss  # noqa: F401

torch.set_num_threads(2)
torch.set_float32_matmul_precision("medium")
torch.backends.cudnn.benchmark = True

BASELINE = {"cudnn_benchmark": False}
