"""FLOPs of a step, the number format of its products, and the rate that a device reaches in it."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from autotune.training.arithmetic import count_flops, matmul_rate
from gpus import CUDA, cuda_only, on_cuda

BATCH, INPUTS, OUTPUTS = 4, 16, 32
PRODUCT = 2 * BATCH * INPUTS * OUTPUTS
TOKENS = 8
AROUND_ATTENTION = 2 * BATCH * TOKENS * INPUTS * (2 * 3 * INPUTS + 3 * (INPUTS + 2 * OUTPUTS))
"""FLOPs of a step in a transformer's linear layers; the first needs no gradient of its inputs."""
ATTENTION = 3 * 2 * (2 * BATCH * TOKENS**2 * INPUTS)
"""FLOPs of the two products of attention, forward and backward; some kernels repeat one."""
FORMATS = ["float32", "bfloat16"]


def has_tf32():
    return torch.cuda.get_device_capability(CUDA) >= (8, 0)


def step_of(model, batch, amp=False):
    """A step that computes a loss and its gradients, but updates nothing."""
    kind = batch.device.type
    model.to(batch.device)

    def step():
        with torch.autocast(kind, dtype=torch.bfloat16, enabled=amp):
            out = model(batch)
        out = out[0] if isinstance(out, tuple) else out
        out.float().sum().backward()

    return step


def counted(device, model, *sizes, amp=False):
    place = torch.device(device)
    return count_flops([step_of(model, torch.randn(sizes, device=place), amp)], place)


@pytest.mark.parametrize(("amp", "number_format"), [(False, "float32"), (True, "bfloat16")])
def test_a_step_has_the_flops_and_the_format_of_its_products(device, amp, number_format):
    found = counted(device, nn.Linear(INPUTS, OUTPUTS), BATCH, INPUTS, amp=amp)
    assert found == (2 * PRODUCT, number_format), "forward, and backward to the weights"


def test_every_step_that_is_given_counts(device):
    place = torch.device(device)
    step = step_of(nn.Linear(INPUTS, OUTPUTS), torch.randn(BATCH, INPUTS, device=place))
    assert count_flops([step, step], place) == (4 * PRODUCT, "float32")


def test_a_compiled_model_counts_as_its_eager_step(device):
    model = nn.Sequential(nn.Linear(INPUTS, OUTPUTS), nn.ReLU())
    model.compile(backend="eager")
    found = counted(device, model, BATCH, INPUTS)
    assert found == (2 * PRODUCT, "float32")


@cuda_only("on a CPU convolutions have the format of all products")
def test_convolutions_of_a_gpu_use_tf32_where_it_has_that():
    found = counted(CUDA, nn.Conv2d(3, 8, 3), BATCH, 3, 8, 8)
    assert found is not None
    assert found[1] == ("tf32" if has_tf32() else "float32")


@cuda_only("a CPU of this kind may have no such products")
def test_a_lower_precision_of_float32_products_is_seen():
    torch.set_float32_matmul_precision("high")
    found = counted(CUDA, nn.Linear(INPUTS, OUTPUTS), BATCH, INPUTS)
    assert found is not None
    assert found[1] == ("tf32" if has_tf32() else "float32")


@pytest.mark.parametrize(
    ("device", "kernel"),
    # torch has no formula for the kernel of a CPU that does not take products.
    [("cpu", SDPBackend.MATH), *(on_cuda(CUDA, one) for one in (SDPBackend.MATH, None))],
)
def test_attention_is_counted(device, kernel):
    model = nn.TransformerEncoderLayer(INPUTS, 2, OUTPUTS, dropout=0.0, batch_first=True)
    with sdpa_kernel(kernel) if kernel else nullcontext():
        found = counted(device, model, BATCH, TOKENS, INPUTS)
    assert found is not None
    assert found[0] >= AROUND_ATTENTION + ATTENTION


def test_a_step_with_an_operator_that_has_no_formula_is_not_counted(device):
    assert counted(device, nn.LSTM(INPUTS, OUTPUTS), 5, BATCH, INPUTS) is None


def test_a_step_that_fails_is_not_counted(device):
    assert counted(device, nn.Linear(INPUTS, OUTPUTS), BATCH, INPUTS + 1) is None


@pytest.mark.parametrize(
    ("device", "number_format"),
    [*(("cpu", one) for one in FORMATS), *(on_cuda(CUDA, one) for one in FORMATS)],
)
def test_a_device_reaches_a_rate_in_a_format(device, number_format):
    before = torch.get_float32_matmul_precision()
    rate = matmul_rate(torch.device(device), number_format)
    assert rate is not None
    assert rate > 0
    assert torch.get_float32_matmul_precision() == before


def test_a_format_without_products_has_no_rate(device):
    assert matmul_rate(torch.device(device), "float4_e2m1fn_x2") is None


@cuda_only("the rates of a CPU depend on what else runs")
def test_narrower_formats_are_faster_on_a_gpu_with_units_for_them():
    if not has_tf32():
        pytest.skip("this GPU has no TF32")
    rates = [matmul_rate(torch.device(CUDA), one) or 0.0 for one in ("float32", "tf32", "bfloat16")]
    assert rates == sorted(rates)
