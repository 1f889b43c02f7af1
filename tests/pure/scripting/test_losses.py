"""The loss of a script is what its outermost backward is called on, recorded without a wait."""

import gc
from random import Random

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from autotune.configuration.script import ScriptOptions
from autotune.configuration.search_space import read_space
from autotune.context.search_context import loss_seconds
from autotune.process.common.imports import undo_all
from autotune.scripting.losses import LossRecorder, StepLoss, falls, fault_of, mean_of_last
from autotune.scripting.observed_training import Steps
from autotune.values.outcome import no_fall
from factories import written


@pytest.fixture
def recorder():
    """A recorder in a process that is left as it was."""
    recorder, steps = LossRecorder(), Steps()
    recorder.watch()
    steps.watch()
    steps.losses.append(recorder.note)
    yield recorder
    undo_all()


def loss(value):
    return torch.tensor(value, requires_grad=True) * 1.0


def test_a_step_has_the_loss_of_each_of_its_backward_passes(recorder):
    for values in ((1.0, 3.0), (5.0,)):
        for value in values:
            loss(value).backward()
        recorder.stepped(samples=8)
    steps = recorder.steps()
    assert [step.losses for step in steps] == [(1.0, 3.0), (5.0,)]
    assert [step.value() for step in steps] == [2.0, 5.0]
    assert steps[0].value("sum") == 4.0


def test_memory_that_the_next_step_writes_into_does_not_change_a_loss(recorder):
    """As a CUDA graph does."""
    shared = loss(1.0)
    shared.backward()
    shared.detach().fill_(9.0)
    recorder.stepped(1)
    assert recorder.steps()[0].losses == (1.0,)


def test_the_factor_of_a_gradient_scaler_is_undone(recorder):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(loss(3.0)).backward()
    (scaler.scale(loss(3.0)) / 2).backward()
    recorder.stepped(1)
    loss(4.0).backward()
    recorder.stepped(2)
    assert [step.losses for step in recorder.steps()] == [(3.0, 1.5), (4.0,)]


def test_a_backward_within_a_backward_is_no_loss(recorder):
    layer = nn.Linear(2, 2)
    checkpoint(layer, torch.ones(1, 2, requires_grad=True), use_reentrant=True).sum().backward()
    recorder.stepped(1)
    assert len(recorder.steps()[0].losses) == 1
    assert recorder.backwards == 1


def test_losses_of_one_call_add_up_and_what_is_no_scalar_is_a_fault(recorder):
    torch.autograd.backward([loss(1.0), loss(2.0)])
    recorder.stepped(1)
    torch.autograd.backward(loss(value) for value in (1.0, 4.0))
    recorder.stepped(2)
    assert [step.losses for step in recorder.steps()] == [(3.0,), (5.0,)]
    torch.ones(3, requires_grad=True).mul(2).backward(torch.ones(3))
    assert recorder.fault == "it calls backward on a tensor of 3 numbers instead of a scalar loss"


def test_the_last_tenth_is_of_samples_not_of_steps():
    small = [StepLoss(10 * n, (float(n),)) for n in range(1, 11)]
    assert mean_of_last(small, 100, "mean", 0.1) == 10.0
    assert mean_of_last(small, 95, "mean", 0.1) == pytest.approx((4.5 * 9 + 5 * 10) / 9.5)
    large = [StepLoss(50, (2.0,)), StepLoss(100, (1.0,))]
    assert mean_of_last(large, 100, "mean", 0.1) == 1.0


@pytest.mark.parametrize(("slope", "expected"), [(-0.1, True), (0.0, False), (0.1, False)])
def test_a_loss_falls_if_it_does_so_beyond_its_spread(slope, expected):
    random = Random(0)
    course = [10 + slope * step + random.gauss(0, 0.5) for step in range(60)]
    assert falls(course) is expected
    assert not falls(course[:10]), "too few"


def test_a_loss_that_falls_at_once_falls():
    """As in gradient descent on all samples: most of its fall lies in the first steps."""
    course = [15 * 0.6**step for step in range(40)]
    assert falls(course)
    assert not falls([*course, *course[:10]]), "it comes back"


def test_steps_without_a_loss_and_losses_that_are_not_finite_judge_nothing():
    good, none = StepLoss(1, (1.0,)), StepLoss(2, ())
    assert fault_of([good]) == ""
    assert "calls backward on no loss" in fault_of([none])
    assert "no backward pass of their own" in fault_of([good, none])
    assert "NaN or infinite" in fault_of([good, StepLoss(2, (float("nan"),))])


def test_a_loss_that_was_watched_too_shortly_names_what_watches_it_for_longer(tmp_path):
    space = read_space(written(tmp_path, "amp_dtype: [null, bfloat16]\n"))
    watched = [loss_seconds(ScriptOptions(()), space, budget) for budget in (90, 180, 360)]
    assert watched == [9.0, 18.0, 30.0]
    assert "(a longer --time-budget in another study, --study NAME" in no_fall(40, 7.5)
    for seconds in (watched[-1], None):
        assert "--time-budget" not in no_fall(40, seconds), "no budget watches it for longer"


def test_no_tensor_is_kept_for_a_loss():
    """Small tensors between the script's own would split the memory that those reuse."""

    def tensors():
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    recorder = LossRecorder()
    before = tensors()
    for step in range(200):
        recorder.note(torch.tensor(float(step), requires_grad=True) * 1.0)
        recorder.stepped(step + 1)
    assert tensors() == before
    assert [step.losses for step in recorder.steps()] == [(float(n),) for n in range(200)]


class OnADevice(Tensor):
    """A tensor that says that it is on an accelerator; its memory is the host's."""

    is_cpu = False
    is_done = False

    def __float__(self):
        assert self.is_done, "it would wait for the device"
        return float(self.as_subclass(Tensor))

    item = tolist = __float__


def test_numbers_of_a_device_are_copied_there_and_read_at_the_end(recorder, monkeypatch):
    shared, expected = torch.zeros(1).as_subclass(OnADevice), []
    for number in range(20):
        shared.fill_(number)
        on_host = torch.tensor(float(number), requires_grad=True)
        recorder.note(shared if number % 7 else on_host)
        recorder.stepped(number)
        expected.append((float(number),))
    monkeypatch.setattr(OnADevice, "is_done", True)
    assert [step.losses for step in recorder.steps()] == expected
    assert recorder.fault == ""
