"""Classify made-up pictures with a loop as a tutorial writes it."""

import argparse
import io

import torch
from PIL import Image
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class Pictures(Dataset):
    """JPEG files in memory; the class is the colour that prevails."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(3, (count,), generator=generator)
        self.files = [self._file(int(label), generator) for label in self.labels]
        self.transform = v2.Compose(
            [v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
        )

    def _file(self, label: int, generator: torch.Generator) -> bytes:
        pixels = torch.randint(160, (64, 64, 3), generator=generator, dtype=torch.uint8)
        pixels[..., label] += 60
        file = io.BytesIO()
        Image.fromarray(pixels.numpy()).save(file, "JPEG")
        return file.getvalue()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        return self.transform(image), int(self.labels[index])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, 2)
        self.conv2 = nn.Conv2d(32, 64, 3, 2)
        self.fc = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        return self.fc(x.mean(dim=(2, 3)))


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    for batch, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        if batch % args.log_interval == 0:
            print(f"epoch {epoch} batch {batch} loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--log-interval", type=int, default=20)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Pictures(4000), batch_size=args.batch_size, shuffle=True)
    model = Net().to(device)
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        train(args, model, device, loader, optimizer, epoch)


if __name__ == "__main__":
    main()
