"""A training script of several processes as a person writes it: torchrun starts it, it does DDP."""

import argparse
import sys
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Points(Dataset):
    """Noise that lies on a disk, which takes its time."""

    def __init__(self, samples: int, seconds: float) -> None:
        self.x = torch.randn(samples, 32, generator=torch.Generator().manual_seed(0))
        self.labels = self.x.sum(1).gt(0).long()
        self.seconds = seconds

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(self.seconds)
        return self.x[index], self.labels[index]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16, help="of each process")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--read-seconds", type=float, default=0.0)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--bucket-cap-mb", type=int)
    args = parser.parse_args()
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()

    data = Points(args.samples, args.read_seconds)
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    network = nn.Sequential(nn.Linear(32, args.width), nn.ReLU(), nn.Linear(args.width, 2))
    buckets = {} if args.bucket_cap_mb is None else {"bucket_cap_mb": args.bucket_cap_mb}
    model = DistributedDataParallel(network, **buckets)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    paces = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        start, losses = time.perf_counter(), []
        for features, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(features), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        taken = len(losses) * args.batch_size * size
        paces.append(taken / (time.perf_counter() - start))
        if rank == 0:
            print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f}", flush=True)
    if rank == 0:
        print(f"{sum(paces[1:]) / max(1, len(paces) - 1):.2f} samples/s", file=sys.stderr)
        print(f"batch size {loader.batch_size}, workers {loader.num_workers}", file=sys.stderr)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
