"""Evidence of an answer: its share of the device's arithmetic."""

import pytest

from autotune.configuration.answer_words import facts
from autotune.configuration.evidence import Arithmetic
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.confirmation.evidence import used
from autotune.training.arithmetic import is_heavy
from autotune.values.outcome import CountedFlops
from factories import best_config, measurement

RUNS = (measurement(100.0), measurement(110.0), measurement(90.0))


def told_of(found):
    """What an answer with this arithmetic says of it."""
    settings = TrainingConfig.of({})
    best = best_config(settings, settings)
    evidence = best.evidence.model_copy(update={"arithmetic": found})
    return dict(facts(best.model_copy(update={"evidence": evidence}))).get("arithmetic")


@pytest.mark.parametrize(
    ("flops", "rate", "mfu"),
    [(1e6, 4e8, 0.25), (1e6, 1e8, 1.0), (1e6, 0.9e8, None), (None, 4e8, None), (1e6, None, None)],
)
def test_the_utilisation_is_the_flops_of_the_throughput_over_the_rate_of_products(flops, rate, mfu):
    found = CountedFlops(flops_per_sample=flops, number_format="bfloat16")
    arithmetic = used(found, RUNS, rate)
    assert arithmetic.mfu == mfu
    assert (told_of(arithmetic) is not None) is (mfu is not None)


@pytest.mark.parametrize(
    ("mfu", "percent"), [(0.996, "100"), (1.0, "100"), (0.994, "99"), (0.0000012, "0.00012")]
)
def test_the_utilisation_is_no_power_of_ten(mfu, percent):
    said = told_of(Arithmetic(mfu=mfu, number_format="bfloat16"))
    assert str(said).startswith(f"{percent} % of the matrix")
    assert str(said).endswith("bfloat16")


@pytest.mark.parametrize(
    ("name", "heavy"),
    [
        ("aten.mm.default", True),
        ("aten._foreach_mm.default", True),
        ("aten.convolution_backward.default", True),
        ("aten.mkldnn_rnn_layer.default", True),
        ("aten._scaled_dot_product_flash_attention_for_cpu.default", True),
        ("aten._fft_r2c.default", True),
        ("aten.linalg_eigh.default", True),
        ("flash_attn._flash_attn_forward.default", True),
        ("flex_attention", True),
        ("aten.linalg_vector_norm.default", False),
        ("aten.upsample_bilinear2d.vec", False),
        ("aten.lgamma.default", False),
        ("aten.embedding.default", False),
        ("aten._foreach_addcmul_.Scalar", False),
        ("aten.native_layer_norm_backward.default", False),
        ("profiler._record_function_enter_new.default", False),
    ],
)
def test_operators_that_may_compute_much_are_known_by_their_names(name, heavy):
    assert is_heavy(name) is heavy
