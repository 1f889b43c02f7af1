"""The numeric gate on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autotune.config import TrainingConfig
from autotune.job import Gate, Job
from autotune.knobs.base import Value
from autotune.outcome import Gated
from autotune.tuning.running.runner import SubprocessRunner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WORKLOADS = Path(__file__).parent.parent / "workloads"


def gated(folder: Path, workload: str, **settings: Value) -> Gated:
    base: dict[str, Value] = {"batch_size": 8}
    job = Job(
        task=Gate(TrainingConfig.of(base).as_dict()),
        device="cuda:0",
        model_path=str(WORKLOADS / f"{workload}.py"),
        config=TrainingConfig.of({**base, **settings}).as_dict(),
    )
    with SubprocessRunner(folder / "inductor") as runner:
        outcome = runner.run(job, folder / "trial")
    assert isinstance(outcome, Gated), outcome
    return outcome


@pytest.mark.parametrize(
    "settings",
    [
        {"amp_dtype": "float16"},
        {"amp_dtype": "bfloat16"},
        {"float32_matmul_precision": "high"},
        {"channels_last": True},
        {"fused_optimizer": True},
        {"compile_mode": "reduce-overhead"},
    ],
    ids=str,
)
def test_a_convolution_computes_the_same_but_for_rounding(
    settings: dict[str, Value], tmp_path: Path
) -> None:
    found = gated(tmp_path, "tiny_conv", **settings)
    assert found.in_double
    assert found.gradient_cosine > 0.99
    assert found.update_error < 1e-3


def test_what_cancels_in_bfloat16_is_seen(tmp_path: Path) -> None:
    assert gated(tmp_path, "cancels", amp_dtype="bfloat16").gradient_cosine < 0.9


def test_where_float64_draws_other_numbers_float32_is_the_best_known(tmp_path: Path) -> None:
    found = gated(tmp_path, "draws", fused_optimizer=True)
    assert found.seed_spread > 0.1
    assert not found.in_double
    assert found.gradient_error < 1e-3
