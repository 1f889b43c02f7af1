"""Run pytorch-autotune 2.0.0 on the same model; note its choice and the gain that it claims.

    pip install pytorch-autotune==2.0.0
    python rival.py MODEL.py [--budget 100] [--out rival.json]

It is called as its documentation says, but without its cache. It gets the workload's network and
loss, AdamW at 1e-3, and one batch of the baseline's size. It times training steps on that one
batch, which is on the device; it tunes neither loader nor batch size. The file has its report, its
claim, and its choice as settings in PyTorch's words, which judge.py puts over the baseline's.
If it is not installed or fails, the file says why, and the exit code is 0 all the same.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

AMP = {"amp_bf16": "bfloat16", "amp_fp16": "float16"}


def main() -> None:
    """Run the rival and write its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=float, default=100.0, help="time budget in seconds")
    parser.add_argument("--out", type=Path, default=Path("rival.json"))
    arguments = parser.parse_args()
    start = time.monotonic()
    if find_spec("pytorch_autotune") is None:
        found: dict[str, Any] = {"settings": None, "why": "pytorch-autotune is not installed"}
    else:
        try:
            found = searched(arguments)
        except Exception as error:  # any error of the rival is its result
            found = {"settings": None, "why": f"{type(error).__name__}: {error}"[:1000]}
    found = {"rival": "pytorch-autotune 2.0.0", "model": arguments.model.name, **found}
    found["seconds"] = round(time.monotonic() - start, 1)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(found.get("why") or f"{found['settings']}, claimed {found['claimed']:.2f}x")


def searched(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the rival's choice, claim and report."""
    import torch
    from judge_side import imported, loader
    from pytorch_autotune import autotune

    torch.manual_seed(0)
    workload = imported(arguments.model.resolve())
    batch = next(iter(loader(workload, dict(workload.BASELINE, num_workers=0))))
    result = autotune(
        workload.build_model(),
        example(workload, batch),
        loss_fn=workload.loss_of,
        optimizer="adamw",
        lr=1e-3,
        budget=int(arguments.budget),
        device=arguments.device,
        cache=False,
    )
    report = json.loads(result.report.to_json())
    return {
        "settings": settings_of(report["winner"]),
        "claimed": report["baseline_ms"] / result.report.winner.ms_per_step,
        "report": report,
    }


def example(workload: ModuleType, batch: Any) -> tuple[Any, Any]:
    """Return the network's inputs and the targets of its loss."""
    split = getattr(workload, "example_batch", tuple)
    inputs, targets = split(batch)
    return inputs, targets


def settings_of(pick: dict[str, Any]) -> dict[str, Any]:
    """Return its choice as settings; all but its baseline allow TF32 and cuDNN's benchmark mode."""
    plain = pick["precision"] == "fp32_default"
    return {
        "amp_dtype": AMP.get(pick["precision"]),
        "float32_matmul_precision": "highest" if plain else "high",
        "cudnn_benchmark": not plain,
        "compile_mode": None if pick["compile"] == "off" else pick["compile"],
        "channels_last": pick["channels_last"],
        "optimizer_impl": "fused" if pick["fused_opt"] else None,
    }


if __name__ == "__main__":
    main()
