"""A workload of three equal blocks with attention, which checkpoint(model) can wrap."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD
from torch.utils import checkpoint as recomputing
from torch.utils.data import TensorDataset

BASELINE = {"batch_size": 8}
WIDTH, HEADS, LENGTH = 16, 2, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens):
        parts = self.project(tokens).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value)
        return self.merge(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.drop = Attention(), nn.Dropout(0.1)

    def forward(self, tokens):
        return tokens + self.drop(self.attention(tokens))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens):
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(tokens.mean(dim=1))


def build_model():
    return Model()


def checkpoint(model):
    for block in model.blocks:
        block.forward = partial(recomputing.checkpoint, block.forward, use_reentrant=False)


def build_dataset():
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(256, LENGTH, WIDTH, generator=generator)
    return TensorDataset(tokens, (tokens.mean(dim=(1, 2)) > 0).long())


def compute_loss(model, batch):
    tokens, labels = batch
    return functional.cross_entropy(model(tokens), labels)


def build_optimizer(parameters, **options):
    return SGD(parameters, lr=0.1, **options)
