"""One side of judge.py: a training in plain torch, with settings applied by hand, run on command.

    python judge_side.py MODEL.py DEVICE SETTINGS-AS-JSON

Commands are lines of JSON on stdin, replies are lines of JSON on stdout. Output of the workload
goes to stderr. Between two commands the process is blocked in a read.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

KNOWN = {
    "batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory",
    "amp_dtype", "float32_matmul_precision", "compile_mode", "channels_last", "cudnn_benchmark",
    "optimizer_impl", "compile_dynamic", "num_threads",
}  # fmt: skip
OFF = (None, False, "whole")  # values of knobs that change nothing
PLAIN = {"in_order": True, "accumulation_steps": 1}  # PyTorch's own, where that is none of OFF
IMAGES = 4  # number of dimensions of tensors that channels_last applies to


def main() -> None:
    """Build the training, then carry out commands until stdin ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    model, device, settings = Path(sys.argv[1]), torch.device(sys.argv[2]), json.loads(sys.argv[3])
    start = time.perf_counter()
    side = Side(model, device, settings)
    answer: dict[str, Any] = {
        "seconds": time.perf_counter() - start,
        "not_applied": sorted(
            name
            for name in settings.keys() - KNOWN
            if settings[name] not in OFF and PLAIN.get(name) != settings[name]
        ),
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }
    while True:
        replies.write(json.dumps(answer) + "\n")
        replies.flush()
        line = sys.stdin.readline()
        if not line:
            break
        command = json.loads(line)
        answer = side.warm_up(**command) if "most" in command else side.run(**command)


def compiled(model: Any, mode: str, dynamic: bool | None) -> Any:
    """Return the model, to be compiled at its first call."""
    return torch.compile(model, mode=mode, dynamic=dynamic)


def optimizer_options(settings: dict[str, Any]) -> dict[str, bool]:
    """Return the arguments of the optimizer."""
    implementation = settings.get("optimizer_impl")
    if implementation == "fused":
        return {"fused": True}
    return {"foreach": implementation == "foreach"} if implementation else {}


class Side:
    """Model, optimizer and loader under settings."""

    def __init__(self, path: Path, device: torch.device, settings: dict[str, Any]) -> None:
        self.settings, self.device = settings, device
        if settings.get("num_threads"):
            torch.set_num_threads(settings["num_threads"])
        torch.set_float32_matmul_precision(settings.get("float32_matmul_precision") or "highest")
        torch.backends.cudnn.benchmark = bool(settings.get("cudnn_benchmark"))
        torch.manual_seed(0)
        workload = imported(path)
        model = workload.build_model().to(device)
        if settings.get("channels_last"):
            model = model.to(memory_format=torch.channels_last)
        build = getattr(workload, "build_optimizer", adamw)
        self.optimizer = build(model.parameters(), **optimizer_options(settings))
        mode = settings.get("compile_mode")
        self.model = compiled(model, mode, settings.get("compile_dynamic")) if mode else model
        self.compute_loss = workload.compute_loss
        dtype = settings.get("amp_dtype")
        self.amp = getattr(torch, dtype) if dtype else None
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == "float16")
        self.batches = endless(loader(workload, settings))
        self.moves: dict[str, Any] = {"non_blocking": True} if settings.get("pin_memory") else {}

    def warm_up(self, most: float) -> dict[str, Any]:
        """Run at least ten steps and a second, so that it compiles and settles.

        It ends after `most` seconds in any case.
        """
        start, steps, loss = time.perf_counter(), 0, None
        while (gone := time.perf_counter() - start) < most and (steps < 10 or gone < 1):
            loss = self.step()
            self.wait()
            steps += 1
        return {
            "seconds": time.perf_counter() - start,
            "steps": steps,
            "loss": None if loss is None else float(loss.detach()),
        }

    def run(self, seconds: float) -> dict[str, Any]:
        """Time a block: whole steps for `seconds`, including their wait for data.

        Batches that were loaded during the turns of others are used up first, untimed, for at most
        the seconds of a block.
        """
        workers = self.settings.get("num_workers") or 0
        stock = workers * (self.settings.get("prefetch_factor") or 2)
        end = time.perf_counter() + seconds
        while stock and time.perf_counter() < end:
            self.step()
            stock -= 1
        self.wait()
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            self.step()
            steps += 1
        self.wait()
        spent = time.perf_counter() - start
        return {"samples": steps * self.settings["batch_size"], "seconds": spent, **self.memory()}

    def step(self) -> Tensor:
        """Run one training step and return its loss, without waiting for the device."""
        batch = self.moved(next(self.batches))
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=self.amp) if self.amp else nullcontext():
            loss = self.compute_loss(self.model, batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def moved(self, batch: Any) -> Any:
        """Return a batch on the device; it may be a tensor, or tuples and lists of tensors."""
        if isinstance(batch, Tensor):
            last = self.settings.get("channels_last") and batch.dim() == IMAGES
            layout = {"memory_format": torch.channels_last} if last else {}
            return batch.to(self.device, **self.moves, **layout)
        return [self.moved(part) for part in batch] if isinstance(batch, tuple | list) else batch

    def wait(self) -> None:
        """Wait until the device is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def memory(self) -> dict[str, Any]:
        """Return the peak of the memory that the device's allocator reserved, in bytes."""
        if self.device.type != "cuda":
            return {}
        return {"reserved_bytes": torch.cuda.max_memory_reserved(self.device)}


def imported(path: Path) -> ModuleType:
    """Import a model.py as a module, with its folder on the import path."""
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def adamw(parameters: Iterator[Tensor], **options: Any) -> torch.optim.Optimizer:
    """Return the optimizer for a workload without `build_optimizer`."""
    return torch.optim.AdamW(parameters, lr=1e-3, **options)


def loader(workload: ModuleType, settings: dict[str, Any]) -> torch.utils.data.DataLoader[Any]:
    """Return the training loader: shuffled, full batches only."""
    dataset = workload.build_dataset()
    stream = isinstance(dataset, torch.utils.data.IterableDataset)
    workers = settings.get("num_workers") or 0
    more = {}
    if workers:
        more = {"prefetch_factor": settings.get("prefetch_factor") or 2}
        more["persistent_workers"] = bool(settings.get("persistent_workers"))
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=settings["batch_size"],
        shuffle=None if stream else True,
        drop_last=True,
        num_workers=workers,
        pin_memory=bool(settings.get("pin_memory")),
        collate_fn=getattr(workload, "collate_fn", None),
        **more,
    )


def endless(batches: torch.utils.data.DataLoader[Any]) -> Iterator[Any]:
    """Yield batches epoch after epoch, without end.

    Raises:
        ValueError: there are fewer samples than a batch takes.
    """
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError(f"no full batch of {batches.batch_size} samples in the dataset")


if __name__ == "__main__":
    main()
