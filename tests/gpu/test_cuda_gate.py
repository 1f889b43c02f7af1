"""The numerics check and recorded losses on a GPU: no more than rounding lies between them."""

from pathlib import Path
from statistics import fmean

import pytest

from autotune.accuracy.numerics_verdict import numerics_fault
from autotune.configuration.job import Gate, Job, TakeFirstSteps
from autotune.configuration.script import Script
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import FirstLosses, Gated
from gpus import CUDA, cuda_only, job_on, on_cuda

WORKLOADS = Path(__file__).parent.parent / "workloads"
SETTINGS = [
    {"amp_dtype": "float16"},
    {"amp_dtype": "bfloat16"},
    {"float32_matmul_precision": "high"},
    {"channels_last": True},
    {"optimizer_impl": "fused"},
]
# Compiling takes longer than all others together; on a CPU tests/real has one.
GRAPHS = {"compile_mode": "reduce-overhead"}


@pytest.fixture
def gated(ask):
    """The gate's findings."""

    def run(device, workload, **settings):
        plain = TrainingConfig.of({"batch_size": 8, "num_threads": 1}).as_dict()
        outcome = ask(job_on(device, Gate(plain), WORKLOADS / f"{workload}.py", **settings))
        assert isinstance(outcome, Gated), outcome
        return outcome

    return run


@pytest.mark.parametrize(
    ("device", "settings"),
    [
        *(("cpu", settings) for settings in SETTINGS),
        *(on_cuda(CUDA, settings) for settings in (*SETTINGS, GRAPHS)),
    ],
    ids=str,
)
def test_a_convolution_computes_the_same_but_for_rounding(device, settings, gated):
    found = gated(device, "tiny_conv", **settings)
    assert found.in_double
    assert found.gradient_error < 0.14
    assert found.update_error < 1e-3


def test_what_cancels_in_bfloat16_is_seen(device, gated):
    found = gated(device, "cancels", amp_dtype="bfloat16")
    assert numerics_fault(found, lower_precision=True) is not None


@cuda_only("on a CPU float64 draws the same numbers")
def test_where_float64_draws_other_numbers_float32_is_the_best_known(gated):
    found = gated(CUDA, "draws", optimizer_impl="fused")
    assert found.seed_spread > 0.1
    assert not found.in_double
    assert found.gradient_error < 1e-3


SCRIPT = Path(__file__).parents[1] / "scripts" / "says_its_losses.py"
STEPS = 1100


@pytest.mark.parametrize("way", ["plain", "overwritten", "scaled", "divided after scaling"])
def test_the_recorded_losses_are_those_that_the_script_has(device, way, ask, tmp_path):
    file = tmp_path / "losses.txt"
    job = Job(
        TakeFirstSteps(STEPS),
        device="auto",
        model_path=str(SCRIPT),
        script=Script((device, way, str(STEPS), str(file))),
        config=TrainingConfig.of({"num_threads": 1}).as_dict(),
        deadline_seconds=180.0,
    )
    recorded = ask(job)
    assert isinstance(recorded, FirstLosses), recorded
    told = [float(line) for line in file.read_text().splitlines()]
    passes = len(told) // STEPS
    assert recorded.backwards_per_step == pytest.approx(passes, rel=0.01)
    means = [fmean(told[n : n + passes]) for n in range(0, len(told), passes)]
    assert recorded.losses == pytest.approx(means, rel=1e-6)
    assert means[0] > 1.2 * means[-1], "it trains"
