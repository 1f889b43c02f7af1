"""Train an autoencoder with Lightning: bfloat16, a compiled model, workers that stay.

With `--mistake` its data are computed by the process that trains.
"""

import argparse

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    """Noisy sums of sines, computed as they are asked for."""

    def __len__(self):
        return 6000

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        frequency, phase = torch.rand(2, 4, 1, generator=generator)
        time = torch.linspace(0, 6.28, 784)
        wave = torch.sin(time * (1 + 8 * frequency) + 6.28 * phase).mean(0)
        return wave + 0.05 * torch.randn(784, generator=generator)


class AutoEncoder(L.LightningModule):
    def __init__(self, width=512):
        super().__init__()
        encoder = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 16))
        decoder = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 784))
        self.network = torch.compile(nn.Sequential(encoder, decoder))

    def training_step(self, batch, batch_idx):
        loss = nn.functional.mse_loss(self.network(batch), batch)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3, fused=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_epochs", type=int, default=100)
    parser.add_argument("--mistake", action="store_true")
    args = parser.parse_args()
    workers = {} if args.mistake else {"num_workers": 2, "persistent_workers": True}
    loader = DataLoader(Waves(), batch_size=32, shuffle=True, drop_last=True, **workers)
    trainer = L.Trainer(
        max_epochs=args.max_epochs,
        precision="bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(AutoEncoder(), loader)


if __name__ == "__main__":
    main()
