"""A training script with the fault of that name."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

fault = sys.argv[1]
data = TensorDataset(torch.randn(640, 4))
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if fault == "crash":
    raise ValueError("a wrong path, say")
if fault == "lacks arguments":
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("--data", required=True)
    parser.parse_args()
if fault == "changes its folder":
    os.chdir(tempfile.mkdtemp())
if fault == "stdin":
    print("you said", input())
if fault == "never steps":
    sys.exit(0)
if fault == "exits":
    sys.exit("no such folder")
batches = (batch for _ in range(100) for batch in DataLoader(data, batch_size=8))
if fault == "too short":
    batches = list(batches)[:4]
if fault == "distributed":
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
if fault == "rubbish":
    print(os.getenv("AUTOTUNE_TRIAL"), os.getenv("WANDB_MODE"), flush=True)
    sys.stdout.buffer.write(b'{"kind": "measured"}\n\xff\x00\x1b[2J' * 1000)
if fault == "spawns":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
if fault == "forks" and os.fork() == 0:
    torch.set_num_threads(1)
steps = 0


def step(x: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


try:
    for (x,) in batches:
        try:
            step(x)
        except BaseException:
            if fault != "catches everything":
                raise
        if fault == "saves each step":
            torch.save(model.state_dict(), sys.argv[2])
        if fault == "dies" and (steps := steps + 1) > 6:
            os.kill(os.getpid(), signal.SIGKILL)
finally:
    if fault == "saves":
        torch.save(model.state_dict(), sys.argv[2])
