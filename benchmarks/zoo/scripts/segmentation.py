"""Segment made-up discs with a U-Net of segmentation-models-pytorch."""

import argparse

import segmentation_models_pytorch as smp
import torch
from torch.utils.data import DataLoader, Dataset


class Discs(Dataset):
    def __len__(self):
        return 800

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        x, y, radius = (torch.rand(3, generator=generator) * 40 + 12).tolist()
        grid = torch.arange(64)
        mask = ((grid[:, None] - y) ** 2 + (grid - x) ** 2 < (radius / 2) ** 2).float()
        return mask + 0.5 * torch.randn(3, 64, 64, generator=generator), mask.unsqueeze(0)


parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()

model = smp.Unet("resnet18", encoder_weights=None, in_channels=3, classes=1)
loss_fn = smp.losses.DiceLoss(smp.losses.BINARY_MODE, from_logits=True)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
loader = DataLoader(Discs(), batch_size=args.batch_size, shuffle=True, num_workers=0)
for epoch in range(args.epochs):
    model.train()
    for image, mask in loader:
        loss = loss_fn(model(image), mask)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch} loss {loss.item():.4f}")
