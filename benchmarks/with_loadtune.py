"""Run loadtune on one of the examples, as its documentation says.

    pip install loadtune==0.3.0
    python -m benchmarks.with_loadtune MODEL.py BATCH_SIZE

It prints a JSON line with the seconds taken and loadtune's best settings in PyTorch's words.
loadtune times settings of the loader and a few others, each once.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from loadtune import Workload, tune


def main() -> None:
    """Tune and print the result."""
    model, batch_size = Path(sys.argv[1]), int(sys.argv[2])
    start = time.monotonic()
    found = tune(_workload(model, batch_size), auto_batch=True, verbose=False)
    best = found.best.knobs.to_dict() if found.best and found.speedup > 1 else {}
    settings = {name: value for name, value in best.items() if value is not None}
    settings["amp_dtype"] = "bfloat16" if settings.pop("amp", False) else None
    print(json.dumps({"seconds": round(time.monotonic() - start, 2), "settings": settings}))


def _workload(path: Path, batch_size: int) -> Workload:
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("model", path)
    assert spec is not None
    assert spec.loader is not None
    mine = importlib.util.module_from_spec(spec)
    sys.modules["model"] = mine
    spec.loader.exec_module(mine)

    def train_step(model: torch.nn.Module, optimizer: Any, batch: Any, _: Any) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss: torch.Tensor = mine.compute_loss(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    return Workload(
        name=path.parent.name,
        make_dataset=mine.build_dataset,
        make_model=mine.build_model,
        train_step=train_step,
        make_optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3),
        default_batch_size=batch_size,
    )


if __name__ == "__main__":
    main()
