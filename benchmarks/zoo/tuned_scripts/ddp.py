"""Train a network on two processes under torchrun, with autocast, a fused optimizer and buckets.

With `--mistake` each process takes the threads of a whole machine.
"""

import argparse

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--mistake", action="store_true")
    args = parser.parse_args()
    distributed.init_process_group("gloo")
    torch.set_num_threads(8 if args.mistake else 1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4096, 512, generator=generator)
    data = TensorDataset(x, (x[:, :256].sum(1) > x[:, 256:].sum(1)).long())
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=64, sampler=sampler, drop_last=True)
    network = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU())
    model = DistributedDataParallel(
        nn.Sequential(network, nn.Linear(512, 2)), gradient_as_bucket_view=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for features, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(features), labels)
            loss.backward()
            optimizer.step()
        if distributed.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
