"""An optimizer step over several batches: the samples and gradients of one batch of all of them."""

import sys
from dataclasses import replace
from itertools import repeat

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from autotune.configuration.job import MeasurePlan, Probe
from autotune.configuration.training_config import TrainingConfig
from autotune.training.batches import endless
from autotune.training.quality import probe
from autotune.training.training_setup import DatasetTooSmallError, apply, build_loader
from autotune.training.workload import load_workload
from children import WORKLOADS
from clockwork import Bench, Clock, Loader


@pytest.fixture
def plain(monkeypatch):
    """Loss that is a mean over samples, of a linear model; 256 samples."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "plain", None)
    return load_workload(WORKLOADS / "plain.py")


def set_up(workload, batch_size, count=1, **settings):
    config = {"batch_size": batch_size, "accumulation_steps": count, **settings}
    dataset = workload.build_dataset()
    return apply(TrainingConfig.of(config), workload, "cpu", seed=0, dataset=dataset)


def scaled_little(setup):
    """A scale at which no gradient overflows; the default one takes some steps to come down."""
    enabled = setup.scaler.is_enabled()
    return replace(setup, scaler=torch.amp.GradScaler("cpu", init_scale=16.0, enabled=enabled))


def trained(setup, steps):
    batches = endless(setup.loader)
    for _ in range(steps):
        setup.step(batches)
    return torch.cat([weight.detach().flatten() for weight in setup.model.parameters()])


@pytest.mark.parametrize(("size", "count"), [(48, 2), (24, 4), (12, 8)])
def test_parts_of_a_batch_train_what_the_whole_batch_does_in_every_epoch(size, count, plain):
    # 256 samples are two steps of 96: the later ones are of the second and the third epoch.
    whole = trained(set_up(plain, 96), steps=5)
    torch.testing.assert_close(trained(set_up(plain, size, count), steps=5), whole)


def test_an_epoch_ends_with_an_optimizer_step(plain):
    config = TrainingConfig.of({"batch_size": 10, "accumulation_steps": 4})
    loader = build_loader(config, plain, plain.build_dataset(), seed=0)
    assert len(loader) == len(list(loader)) == 24


def test_a_dataset_without_the_samples_of_a_step_is_refused(plain):
    with pytest.raises(DatasetTooSmallError, match="256 samples, fewer than one step of 4 batches"):
        set_up(plain, 100, 4)


def test_the_loss_of_a_step_is_the_mean_of_its_batches(plain):
    one, parts = set_up(plain, 64), set_up(plain, 16, 4)
    losses = [float(setup.step(endless(setup.loader))) for setup in (one, parts)]
    assert losses[0] == pytest.approx(losses[1])


def test_gradients_are_clipped_once_a_step_unscaled_and_whole(plain):
    seen = []

    def clip_gradients(model):
        seen.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.01)))

    clipping = replace(plain, clip_gradients=clip_gradients)
    norms = {}
    for dtype in (None, "float16"):
        for size, count in ((64, 1), (16, 4)):
            before = len(seen)
            setup = scaled_little(set_up(clipping, size, count, amp_dtype=dtype))
            setup.step(endless(setup.loader))
            assert len(seen) == before + 1
            norms[dtype, size] = seen[-1]
    assert norms[None, 16] == pytest.approx(norms[None, 64])
    # A scale of 16 would show.
    assert norms["float16", 16] == pytest.approx(norms[None, 64], rel=0.05)


def test_a_step_takes_its_batches_and_none_more(plain):
    setup = set_up(plain, 8, 4)
    batch = next(iter(setup.loader))
    given = []

    def batches():
        while True:
            given.append(len(given))
            yield batch

    stream = batches()
    setup.step(stream)
    setup.step(stream)
    assert len(given) == 2 * 4


def test_passes_that_a_scaler_makes_void_are_not_counted_into_the_next_step(plain):
    setup = scaled_little(set_up(plain, 8, 2, amp_dtype="float16"))
    batch = next(iter(setup.loader))
    setup.accumulate(repeat(batch), 2)  # and no update, as after an overflow
    setup.step(repeat(batch))
    assert setup.accumulation_steps == 2


@pytest.mark.parametrize("samples", [1, 7, 33, 64, 65, 97, 100])
@pytest.mark.parametrize(("size", "count"), [(8, 1), (8, 4), (32, 2)])
def test_a_probe_trains_on_exactly_its_samples_however_a_step_is_split(samples, size, count, plain):
    seen = []

    def compute_loss(model, batch):
        seen.append(len(batch[0]))
        return plain.compute_loss(model, batch)

    setup = set_up(replace(plain, compute_loss=compute_loss), size, count)
    probe(setup, None, Probe(samples, (0,)), lambda _: None)
    assert sum(seen) == samples
    assert max(seen) <= size + 1


def test_a_block_counts_the_samples_of_all_batches_of_its_steps():
    def step(batches):
        for _ in range(3):
            bench.step(batches)

    bench = Bench(Loader(Clock(), epoch=10**9), [1.0])
    timer = replace(bench.timer(per_step=3), step=step)
    plan = MeasurePlan(warmup_steps=2, block_seconds=9.0, block_counts=(6,), max_seconds=1e9)
    warm_up = timer.warm_up(plan)
    assert warm_up.step_seconds == (3.0, 3.0)
    blocks = timer.time_blocks(plan, warm_up.calm_seconds, batch_size=8)
    assert [block.samples for block in blocks] == [3 * 3 * 8] * 6
    assert [block.seconds for block in blocks] == [9.0] * 6


def test_a_loader_that_shuffles_draws_the_same_order_for_one_batch_a_step(plain):
    dataset = plain.build_dataset()
    config = TrainingConfig.of({"batch_size": 48})
    ours = endless(build_loader(config, plain, dataset, seed=3))
    generator = torch.Generator().manual_seed(3)
    theirs = endless(DataLoader(dataset, 48, shuffle=True, drop_last=True, generator=generator))
    for _ in range(12):
        torch.testing.assert_close(next(ours), next(theirs), rtol=0, atol=0)
