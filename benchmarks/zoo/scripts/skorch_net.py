"""Fit a small network to a table with skorch, as with any estimator of scikit-learn."""

import numpy as np
import torch
from skorch import NeuralNetClassifier
from torch import nn

rng = np.random.default_rng(0)
X = rng.normal(size=(20000, 40)).astype(np.float32)
y = (X[:, :20].sum(1) * X[:, 20] > 0).astype(np.int64)


class Module(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(40, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(self, x):
        return self.layers(x)


net = NeuralNetClassifier(
    Module,
    criterion=nn.CrossEntropyLoss,
    optimizer=torch.optim.Adam,
    max_epochs=60,
    lr=1e-3,
    batch_size=64,
    iterator_train__shuffle=True,
)
net.fit(X, y)
