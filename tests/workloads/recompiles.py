"""Its model changes a constant after a while, for which torch.compile has to compile again."""

from plain import BASELINE, build_dataset, build_optimizer  # noqa: F401
from torch import nn
from torch.nn import functional

# More than the warm-up takes, fewer than six blocks of 0.02 s on a slow processor.
STEPS_BEFORE = 40
losses: list[None] = []


class Changing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.mode = "first"

    def forward(self, points):
        scores = self.layer(points)
        return scores if self.mode == "first" else scores * 2


def build_model():
    return Changing()


def compute_loss(model, batch):
    change_after_a_while(model)
    return loss_of(model, batch)


def change_after_a_while(model):
    losses.append(None)
    if len(losses) == STEPS_BEFORE:
        model.mode = "second"


def loss_of(model, batch):
    points, labels = batch
    return functional.cross_entropy(model(points), labels)
