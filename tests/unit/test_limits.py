"""Each stage alone at the settings of a result, and its use of the device's arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotune.configuration.best_config import Evidence, Throughput
from autotune.configuration.evidence_parts import StageLimits
from autotune.configuration.training_config import TrainingConfig
from autotune.console.answer_lines import arithmetic_lines
from autotune.limits.flops import is_heavy
from autotune.report.explain import stage_sentences
from autotune.report.stage_charts import stages_of
from autotune.searching.confirmation.limits import limits_of_result
from autotune.values.measurement import Noise
from autotune.values.stages import SpeedLimits
from factories import best_config, in_turns, measurement
from reporting import report_of, trial

RUNS = (measurement(100.0), measurement(110.0), measurement(90.0))
SPREAD = (1.1, 1.2, 1.3, 1.4, 1.5, 1.6)


def disturbed(found: SpeedLimits, *places: int) -> SpeedLimits:
    """The same rounds, but for other programs in these."""
    rounds = list(found.rounds)
    for place in places:
        block = replace(rounds[place].training, noise=Noise(foreign=0.5))
        rounds[place] = replace(rounds[place], training=block)
    return replace(found, rounds=tuple(rounds))


def with_limits(limits: StageLimits) -> Evidence:
    settings = TrainingConfig.of({})
    best = Throughput(samples_per_second=100.0, ci95=(99.0, 101.0))
    evidence = best_config(settings, settings).evidence
    return evidence.model_copy(update={"limits": limits, "best": best})


def test_a_stage_alone_is_its_ratio_to_training_at_the_throughput_that_is_stated() -> None:
    limits = limits_of_result(in_turns((1.25,) * 6, loading=3.0), RUNS, None)
    assert limits.compute == 125
    assert limits.loader == 300


def test_its_interval_is_that_of_the_ratio_over_the_rounds() -> None:
    limits = limits_of_result(in_turns(SPREAD), RUNS, None)
    assert limits.compute_ci95 == (110, 160)
    assert limits.compute is not None
    assert 130 < limits.compute < 140


def test_the_boundary_between_epochs_is_the_loaders() -> None:
    run = replace(measurement(100.0), boundary_seconds=(1.0,), epoch_samples=100)
    limits = limits_of_result(in_turns((1.0,) * 6, loading=1.0), [run], None)
    assert limits.compute == 100, "a sample takes 0.01 s, and 0.01 s of the boundary"
    assert limits.loader == 50 == run.samples_per_second


@pytest.mark.parametrize(
    ("ratios", "is_told"),
    [
        ((0.7, 0.8, 0.8, 0.8, 0.9, 0.95), False),
        ((0.7, 0.8, 0.8, 0.8, 0.9, 1.05), False),
        ((0.9, 1.1, 1.2, 1.2, 1.3, 1.4), False),
        ((1.0, 1.1, 1.2, 1.2, 1.3, 1.4), True),
        ((0.95, 0.96, 1.5), False),
        ((0.95, 1.2, 1.5), True),
    ],
)
def test_a_stage_is_told_only_where_it_is_told_to_be_faster_than_training(
    ratios: Sequence[float], is_told: bool
) -> None:
    limits = limits_of_result(in_turns(ratios), RUNS, None)
    assert (limits.compute is not None) is is_told
    assert (limits.compute_ci95 is not None) is (is_told and len(ratios) >= 6)
    assert limits.loader == 1000
    said = "Computing alone is not told apart from training: it was not timed faster beyond the"
    assert (said in " ".join(stage_sentences(with_limits(limits)))) is not is_told


def test_with_fewer_than_six_rounds_no_interval_is_stated() -> None:
    limits = limits_of_result(in_turns((1.5, 1.5, 1.5)), RUNS, None)
    assert limits.compute == 150
    assert limits.compute_ci95 is None


def test_disturbed_rounds_do_not_count_where_six_others_do() -> None:
    eight = in_turns((9.0, 9.0, *SPREAD))
    assert limits_of_result(disturbed(eight, 0, 1), RUNS, None).compute_ci95 == (110, 160)
    seven = in_turns((9.0, *SPREAD[1:], 1.1))
    few = limits_of_result(disturbed(seven, 0, 1), RUNS, None).compute_ci95
    assert few == (110, 900), "all count where too few are left"


@pytest.mark.parametrize(
    ("flops", "rate", "mfu"),
    [(1e6, 4e8, 0.25), (1e6, 1e8, 1.0), (1e6, 0.9e8, None), (None, 4e8, None), (1e6, None, None)],
)
def test_the_utilisation_is_the_flops_of_the_throughput_over_the_rate_of_products(
    flops: float | None, rate: float | None, mfu: float | None
) -> None:
    found = in_turns(flops_per_sample=flops, number_format="bfloat16")
    limits = limits_of_result(found, RUNS, rate)
    assert limits.mfu == mfu
    line = "  arithmetic  uses 25 % of the matrix multiplication rate that this machine reached in "
    if mfu == 0.25:
        assert arithmetic_lines(with_limits(limits)) == [f"{line}bfloat16"]
    assert bool(arithmetic_lines(with_limits(limits))) is (mfu is not None)


@pytest.mark.parametrize(
    ("mfu", "percent"), [(0.996, "100"), (1.0, "100"), (0.994, "99"), (0.0000012, "0.00012")]
)
def test_the_utilisation_is_no_power_of_ten(mfu: float, percent: str) -> None:
    limits = StageLimits(compute=None, loader=None, mfu=mfu, number_format="bfloat16")
    (line,) = arithmetic_lines(with_limits(limits))
    assert line.startswith(f"  arithmetic  uses {percent} % of the matrix")


def test_sentences_name_the_settings_and_the_intervals() -> None:
    limits = limits_of_result(in_turns(SPREAD, loading=3.0), RUNS, None)
    told = " ".join(stage_sentences(with_limits(limits)))
    assert "Alone, at these settings" in told
    assert "computing 134.9 (110 to 160), loading 300 (300 to 300)" in told
    assert "The slower stage alone is computing; training reaches 74 % of it." in told


@pytest.mark.parametrize(
    "older",
    [
        StageLimits(compute=63.5, loader=500.0),
        StageLimits(compute=110.0, compute_ci95=(90.0, 120.0), loader=500.0),
    ],
)
def test_no_stage_of_an_older_file_is_told_below_the_throughput(older: StageLimits) -> None:
    first, second = stage_sentences(with_limits(older))
    assert first == "Alone, at these settings, samples/s would be: loading 500."
    assert second.startswith("Computing alone is not told apart from training")
    settings = TrainingConfig.of({})
    best = best_config(settings.replace(batch_size=16), settings)
    best = best.model_copy(update={"evidence": with_limits(older)})
    drawn = [stage.name for stage in stages_of(report_of((trial(0),), best))]
    assert [name for name in drawn if not name.startswith("training")] == ["loader"]


def test_stages_that_are_left_out_stand_in_one_order() -> None:
    told = list(stage_sentences(with_limits(StageLimits(compute=None, loader=None))))
    assert [sentence.split()[0] for sentence in told] == ["Computing", "Loading"]


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
def test_operators_that_may_compute_much_are_known_by_their_names(name: str, heavy: bool) -> None:
    assert is_heavy(name) is heavy
