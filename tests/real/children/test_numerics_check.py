"""The numeric gate, run by real children, and learning rates that reach them."""

import tempfile
import weakref
from dataclasses import replace
from itertools import islice

import pytest
import torch

from autotune.accuracy.numerics_verdict import NUMERICS, PRECISION, numerics_fault
from autotune.configuration.job import Gate, Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.numerics import trajectory
from autotune.numerics.trajectory import DiskStore
from autotune.training.training_setup import apply, build_dataset
from autotune.training.workload import load_workload
from autotune.values.outcome import Gated, NonFinite, Probed
from children import SETTINGS, WORKLOADS, ended_as, job_for, model_of
from tiers import late


@pytest.fixture
def outcome_of(runner, tmp_path):
    """The gate's outcome under these settings, held against default numerics."""

    def run(workload, in_double=True, **settings):
        numerics = {name: value for name, value in settings.items() if name in NUMERICS}
        reference = {**SETTINGS, **settings} | {name: KNOBS[name].default for name in numerics}
        task = Gate(TrainingConfig.of(reference).as_dict(), in_double)
        job = job_for(WORKLOADS / f"{workload}.py", settings, task=task)
        return runner.run(job, tmp_path / "trial")

    return run


def fault_of(gated, settings):
    assert isinstance(gated, Gated)
    return numerics_fault(gated, lower_precision=any(name in settings for name in PRECISION))


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("plain", {}),
        ("plain", {"optimizer_impl": "fused"}),
        ("plain", {"amp_dtype": "bfloat16"}),
        late("plain", {"amp_dtype": "float16"}),
        late("nested_batches", {"amp_dtype": "bfloat16"}),
        late("stream", {"optimizer_impl": "fused"}),
        ("tiny_conv", {"channels_last": True}),
        ("draws", {"amp_dtype": "bfloat16"}),
        # One batch is an epoch: another seed changes nothing but the order in it.
        late("plain", {"amp_dtype": "bfloat16", "batch_size": 256}),
    ],
    ids=str,
)
def test_what_only_rounds_passes(workload, settings, outcome_of):
    found = outcome_of(workload, **settings)
    assert fault_of(found, settings) is None
    assert found.in_double
    assert found.gradient_error < 0.01
    assert found.path_error < (0.1 if any(name in settings for name in PRECISION) else 0.01)
    assert found.reach_error < 0.01


@pytest.mark.parametrize(
    ("workload", "settings", "what"),
    [
        ("cancels", {"amp_dtype": "bfloat16"}, "gradients differ from float64 by"),
        ("bad_layout", {"channels_last": True}, "gradients differ from float64 by"),
        ("wrong_when_fused", {"optimizer_impl": "fused"}, "the optimizer's update differs"),
    ],
)
def test_what_computes_something_else_is_refused_with_the_reason(
    workload, settings, what, outcome_of
):
    fault = fault_of(outcome_of(workload, **settings), settings)
    assert what in fault.reason
    assert fault.margin > 0


LATER = """
from tiny_conv import BASELINE, build_dataset, build_model, compute_loss

class Changing(plain.SGD):
    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            if group["fused"]:
                group.update({change})
        return loss

def build_optimizer(parameters, **options):
    return Changing(parameters, lr=0.01, momentum=0.9, **options)
"""


@pytest.mark.parametrize("change", ["lr=-0.01", "lr=0.005", "momentum=0.0"])
def test_an_optimizer_that_goes_another_way_after_its_first_step_is_refused(
    change, outcome_of, tmp_path
):
    model, settings = model_of(tmp_path, LATER.format(change=change)), {"optimizer_impl": "fused"}
    fault = fault_of(outcome_of(model.with_suffix(""), **settings), settings)
    assert "weights after the first steps differ" in fault.reason
    assert fault.margin > 0


def test_dropout_is_off_and_other_random_numbers_are_the_same_each_time(outcome_of):
    found = outcome_of("draws", channels_last=False)
    assert found.seed_spread > 0.1, "the function's dropout is still there"
    assert found.gradient_error < 1e-5


def test_a_model_that_draws_numbers_may_go_another_way(outcome_of):
    assert outcome_of("draws", optimizer_impl="fused").rounding_path_error > 0.05
    assert outcome_of("plain", optimizer_impl="fused").rounding_path_error < 0.01


def test_no_batch_is_kept_in_memory(tmp_path):
    workload = load_workload(WORKLOADS / "plain.py")
    dataset = build_dataset(workload)
    config = TrainingConfig.of(SETTINGS)
    alive, at_most = [], []
    batches = iter(apply(config, workload, "cpu", 0, dataset).loader)

    def load():
        batch = next(batches)
        alive.append(weakref.ref(batch[0]))
        at_most.append(sum(one() is not None for one in alive))
        return batch

    setup = apply(config, workload, "cpu", 0, dataset)
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        trajectory.steps(setup, [load] * trajectory.STEPS, 0, DiskStore(file))
    assert len(alive) == trajectory.STEPS
    assert max(at_most) <= 1, "the one in use"


def test_a_step_that_the_scaler_skips_is_taken_again(tmp_path):
    workload = load_workload(WORKLOADS / "plain.py")
    settings = TrainingConfig.of({**SETTINGS, "amp_dtype": "float16"})

    def path(first_scale, store):
        setup = apply(settings, workload, "cpu", 0, build_dataset(workload))
        scaler = torch.amp.GradScaler("cpu", init_scale=first_scale)
        start = trajectory.snapshot(setup, store)
        used = [store.put_batch(batch) for batch in islice(setup.loader, trajectory.STEPS)]
        end = trajectory.steps(replace(setup, scaler=scaler), used, 0, store)
        return start, end, scaler.get_scale() < first_scale

    with tempfile.TemporaryFile(dir=tmp_path) as file:
        store = DiskStore(file)
        start, settled, skipped = path(64.0, store)
        assert not skipped
        _, found, skipped = path(2.0**20, store)
        assert skipped
        apart = trajectory.distances(start, settled, found).path
    assert apart < 1 / (2 * trajectory.STEPS), "a step less would be twice as far"


def test_compiled_code_draws_the_numbers_that_eager_code_draws(outcome_of):
    found = outcome_of("draws", compile_mode="default")
    assert found.seed_spread > 0.1
    assert found.gradient_error < 1e-5
    assert found.path_error < 0.01


def test_a_model_that_only_runs_in_float32_is_compared_with_that(outcome_of):
    found = outcome_of("single_only", optimizer_impl="fused")
    assert not found.in_double
    assert found.reference_gradient_error == 0
    assert fault_of(found, {}) is None


def test_another_batch_tells_how_much_gradients_vary(outcome_of):
    assert outcome_of("plain").batch_spread > 0.01


def test_a_loss_that_is_not_finite_is_told_as_such(outcome_of):
    outcome = ended_as(NonFinite, outcome_of("nan_loss", optimizer_impl="fused"))
    assert "the loss of one batch" in outcome.detail


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_the_learning_rate_factor_of_a_job_reaches_the_optimizer(factor, runner, tmp_path):
    job = job_for(WORKLOADS / "two_rates.py", task=Probe(samples=64, seeds=(0,)))
    outcome = ended_as(Probed, runner.run(replace(job, lr_factor=factor), tmp_path / "trial"))
    assert outcome.qualities == (0.375 * factor,)
