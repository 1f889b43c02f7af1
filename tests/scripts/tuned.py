"""Tuned by hand: threads, precision, cuDNN's search, determinism and the optimizer's kernel.

Arguments name ways in which it sets them, or sets them once more while it trains.
"""

import itertools
import sys
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WAYS = sys.argv[1:]


class Threads(Dataset):
    """Samples that tell the threads of the process that loads them."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(torch.get_num_threads()))


def tune() -> None:
    torch.set_num_threads(2)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    torch.use_deterministic_algorithms(True)
    if "each backend" in WAYS:
        torch.backends.cuda.matmul.fp32_precision = "ieee"


def as_before(optimizer: torch.optim.Optimizer) -> dict:
    """The state that a run without autotune saved."""
    state = optimizer.state_dict()
    for group in state["param_groups"]:
        group.update(foreach=True, fused=None)
    return state


def main() -> None:
    if "in a thread" in WAYS:
        thread = threading.Thread(target=tune)
        thread.start()
        thread.join()
    else:
        tune()
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)
    if "rate in a tensor" in WAYS:  # which foreach does not take
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-4), foreach=False)
    loader = DataLoader(Threads(), batch_size=16, num_workers=int("workers" in WAYS))
    epochs = itertools.count() if "forever" in WAYS else range(1)
    for step, x in enumerate(batch for _ in epochs for batch in loader):
        if step == 20 and "again" in WAYS:
            tune()
        if step == 1 and "resumes" in WAYS:
            optimizer.load_state_dict(as_before(optimizer))
        assert not loader.num_workers or x.eq(1).all(), "a worker has one thread"
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    print(
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(),
        [group["fused"] or group["foreach"] for group in optimizer.param_groups],
    )


if __name__ == "__main__":
    main()
