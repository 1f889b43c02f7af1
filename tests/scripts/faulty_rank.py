"""A training script of two processes, in which rank 1 goes wrong as its argument says."""

import os
import signal
import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

fault = sys.argv[1]
address = f"tcp://127.0.0.1:{sys.argv[2]}" if fault == "port in use" else "env://"
place = {name: int(os.environ[variable]) for name, variable in (("rank", "RANK"),)}
distributed.init_process_group("gloo", address, world_size=int(os.environ["WORLD_SIZE"]), **place)
rank = distributed.get_rank()
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 5 if fault == "ends early" and rank else 100_000
for step in range(steps):
    if rank and step == 6 and fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    if fault == "diverges" and rank and step > 6:
        loss = loss * float("nan")
    loss.backward()
    optimizer.step()
