"""A torchrun script as somebody writes it without autotune; it prints its seconds for each block.

    torchrun --standalone --nproc-per-node 2 benchmarks/ddp_by_hand.py '{"bucket_cap_mb": 5}'

The argument is JSON: arguments of DistributedDataParallel, and `hook` (a number format),
`accumulate` (batches of a step) and `exchange_each` (exchange gradients after each of them).
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

sys.path.insert(0, str(Path(__file__).parent))
import ddp_model

BATCH, WARM_UP, BLOCKS, BLOCK_SECONDS = 32, 5, 6, 0.25
HOOKS = {"bfloat16": default_hooks.bf16_compress_hook, "float16": default_hooks.fp16_compress_hook}


def main() -> None:
    """Train for a moment and print the slowest rank's seconds a step, one number a block."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    settings: dict[str, Any] = json.loads(sys.argv[1])
    hook, count = settings.pop("hook", None), settings.pop("accumulate", 1)
    each = settings.pop("exchange_each", False)
    torch.manual_seed(0)
    model = DistributedDataParallel(ddp_model.build_model(), **settings)
    if hook is not None:
        model.register_comm_hook(None, HOOKS[hook])
    optimizer = ddp_model.build_optimizer(model.parameters())
    batches = endless()

    def step() -> None:
        optimizer.zero_grad()
        for left in range(count - 1, -1, -1):
            with model.no_sync() if left and not each else nullcontext():
                (ddp_model.compute_loss(model, next(batches)) / count).backward()
        optimizer.step()

    seconds = [slowest(step, 1) for _ in range(WARM_UP)]
    steps = max(1, round(BLOCK_SECONDS / min(seconds)))
    blocks = [slowest(step, steps) / steps for _ in range(BLOCKS)]
    if distributed.get_rank() == 0:
        sys.stdout.write(json.dumps(blocks) + "\n")
    distributed.destroy_process_group()


def endless() -> Any:
    """Yield batches of this process without end."""
    dataset = ddp_model.build_dataset()
    sampler: Any = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, BATCH, sampler=sampler, drop_last=True)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from loader


def slowest(step: Any, steps: int) -> float:
    """Return the seconds of the slowest process for so many steps."""
    distributed.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    taken = torch.tensor([time.perf_counter() - start])
    distributed.all_reduce(taken, distributed.ReduceOp.MAX)
    return float(taken)


if __name__ == "__main__":
    main()
