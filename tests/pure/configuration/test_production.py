"""A best.yaml put into force in a training loop that is not ours."""

import re

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

import autotune
from autotune.configuration.best_config import facts, write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.process.common import interpreter
from autotune.production import Best
from autotune.values.errors import UsageError
from factories import best_config, with_not_proven

# The answer was made for another machine.
pytestmark = pytest.mark.filterwarnings("ignore::autotune.MismatchWarning")

MINE = TrainingConfig.of({"batch_size": 8, "num_threads": 2})
FASTER = MINE.replace(
    batch_size=16, amp_dtype="bfloat16", channels_last=True, optimizer_impl="fused", num_threads=1
)
CPU = torch.device("cpu")
ROWS = TensorDataset(torch.ones(40, 3, 4, 4))


@pytest.fixture
def best(tmp_path):
    write_best(best_config(FASTER, MINE), tmp_path / "best.yaml")
    return autotune.load(tmp_path / "best.yaml")


def changed(best, **changes):
    return Best(best.answer.model_copy(update=changes))


def test_a_torch_that_is_too_old_is_refused_by_name(best, monkeypatch):
    monkeypatch.setattr(interpreter, "torch_version", lambda: "2.5.1+cu124")
    for use in (
        best.apply_to_process,
        best.optimizer_kwargs,
        lambda: best.prepare(nn.Linear(1, 1)),
    ):
        with pytest.raises(UsageError, match=r"^torch 2\.5\.1\+cu124 is too old: .* torch 2\.6 or"):
            use()


def test_a_training_loop_of_ones_own_runs_under_the_settings(best):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        best.apply_to_process()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    model = best.prepare(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 1)))
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=best.lr(0.1), **best.optimizer_kwargs())
    assert optimizer.defaults["fused"] is True
    sizes = []
    for batch in best.loader(ROWS, shuffle=True):
        (images,) = best.transfer(batch, CPU)
        assert images.is_contiguous(memory_format=torch.channels_last)
        with best.autocast(CPU):
            outputs = model(images)
        assert outputs.dtype == torch.bfloat16
        scaler = best.scaler(CPU)
        assert not scaler.is_enabled()
        outputs.float().mean().backward()
        optimizer.step()
        sizes.append(len(images))
    assert sizes == [16, 16], "full batches only, as it was measured"


def test_arguments_of_the_loader_win_over_the_file(best):
    assert [len(b[0]) for b in best.loader(ROWS, batch_size=10, drop_last=False)] == [10] * 4


def test_settings_that_a_loader_refuses_beside_its_arguments_are_left_out():
    settings = {"num_workers": 1, "prefetch_factor": 4, "persistent_workers": True}
    best = Best(best_config(MINE.replace(**settings), MINE))
    alone = best.loader(ROWS, num_workers=0)
    assert [len(b[0]) for b in alone] == [8] * 5
    sampler = BatchSampler(SequentialSampler(ROWS), 10, drop_last=False)
    sampled, single = best.loader(ROWS, batch_sampler=sampler), best.loader(ROWS, batch_size=None)
    assert (sampled.batch_sampler, sampled.prefetch_factor) == (sampler, 4)
    assert (single.batch_size, single.persistent_workers) == (None, True)


def test_it_says_what_it_changes_and_what_that_brings(best):
    first, *_ = best.explain().splitlines()
    assert "batch_size=16" in first
    assert "num_threads=1" in first
    assert "num_workers" not in first, "it is as it was"
    assert first in repr(best)


def test_it_says_what_was_allowed_what_the_probes_tell_and_what_is_not_proven(best):
    said = dict(facts(with_not_proven(best.answer)))
    assert said["allowed"].startswith("up to 0.009 worse")
    assert "4096 samples each" in said["trainings"]
    assert "a batch of 16 instead of 8" in said["lr"]
    assert "the batch size" in said["check"]
    assert re.search(r"trial 7 \(batch_size=64\) .*0\.88.*0\.891 \(6 seeds\)", said["not proven"])
    kept = Best(with_not_proven(best_config(MINE, MINE)))
    assert "nothing that trains as well" in kept.explain().splitlines()[0]
    assert "trial 7" in dict(facts(kept.answer))["not proven"]


def of_two(best, **settings):
    config = TrainingConfig.of({"batch_size": 8, "num_threads": 1, **settings})
    return changed(best, config=config.as_dict(), processes=2)


@pytest.fixture
def alone_in_a_group():
    """A process group of this process alone."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def a_group():
    """A process group of two, of which the other is never there: nothing is sent."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("alone_in_a_group")
def test_a_process_that_is_alone_in_its_group_has_nothing_to_wrap(best):
    model = nn.Linear(2, 2)
    assert of_two(best).wrap(model) is model
    assert type(model) is nn.Linear


@pytest.mark.usefixtures("a_group")
def test_a_model_is_wrapped_with_the_settings_of_the_file(best):
    settings = {"ddp_bucket_mb": 50, "gradient_as_bucket_view": True, "ddp_comm_dtype": "float16"}
    ddp = of_two(best, **settings).wrap(nn.Linear(2, 2))
    assert isinstance(ddp, DistributedDataParallel)
    assert KNOBS["ddp_bucket_mb"].read_back(Wrapped(ddp)) == 50
    assert KNOBS["gradient_as_bucket_view"].read_back(Wrapped(ddp)) is True
    assert KNOBS["ddp_comm_dtype"].read_back(Wrapped(ddp)) == "float16"


class Wrapped:
    """What knobs of DistributedDataParallel read of a training."""

    def __init__(self, ddp):
        self.ddp = ddp


@pytest.mark.usefixtures("a_group")
def test_gradients_stay_with_the_process_in_no_sync(best):
    ddp = of_two(best).wrap(nn.Linear(2, 2))
    with best.no_sync(ddp):
        assert ddp.require_backward_grad_sync is False
    assert ddp.require_backward_grad_sync is True


def test_a_process_that_trains_alone_has_nothing_to_wrap(best, monkeypatch):
    model = nn.Linear(2, 2)
    assert best.wrap(model) is model
    with best.no_sync(model):
        pass
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="2 processes were started"):
        best.wrap(model)


def test_batches_of_a_result_are_moved_one_by_one():
    config = TrainingConfig.of({"batch_size": 4})
    best = Best(best_config(config, config))
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4)
    assert [batch[0].tolist() for batch in best.batches(loader, "cpu")] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]


def test_an_epoch_of_a_result_has_the_batches_of_whole_steps():
    config = TrainingConfig.of({"batch_size": 2, "accumulation_steps": 4})
    best = Best(best_config(config, config))
    loader = DataLoader(TensorDataset(torch.arange(26)), batch_size=2)
    for _ in range(2):
        assert [int(batch[0][0]) for batch in best.batches(loader, "cpu")] == list(range(0, 24, 2))
    assert len(list(best.batches(map(list, loader), "cpu"))) == 13, "of no known length"
    short = DataLoader(TensorDataset(torch.arange(6)), batch_size=2)
    with pytest.raises(UsageError, match="3 batches, and an optimizer step takes 4"):
        next(best.batches(short, "cpu"))
