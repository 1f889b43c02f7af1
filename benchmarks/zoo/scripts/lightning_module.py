"""Train an autoencoder with Lightning, validation and logging included."""

import argparse

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


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
        self.encoder = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 16))
        self.decoder = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 784))

    def training_step(self, batch, batch_idx):
        loss = nn.functional.mse_loss(self.decoder(self.encoder(batch)), batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(batch)), batch))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--num_workers", type=int, default=0)
    parser.add_argument("--max_epochs", type=int, default=30)
    args = parser.parse_args()
    train, val = random_split(Waves(), [5500, 500])
    loaders = [
        DataLoader(
            part, batch_size=args.batch_size, shuffle=part is train, num_workers=args.num_workers
        )
        for part in (train, val)
    ]
    trainer = L.Trainer(max_epochs=args.max_epochs, enable_progress_bar=False)
    trainer.fit(AutoEncoder(), *loaders)


if __name__ == "__main__":
    main()
