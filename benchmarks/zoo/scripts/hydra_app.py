"""Train a regression whose settings come from Hydra."""

import hydra
import torch
from omegaconf import DictConfig
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    x = torch.randn(20000, 32)
    y = torch.sin(x.sum(1, keepdim=True)) + x[:, :1] * x[:, 1:2]
    loader = DataLoader(TensorDataset(x, y), batch_size=cfg.train.batch_size, shuffle=True)
    width = cfg.model.width
    model = nn.Sequential(
        nn.Linear(32, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.train.lr)
    for epoch in range(cfg.train.epochs):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
