"""Numbers of a training are kept as numbers: no tensor of the script, and none of ours for each."""

from __future__ import annotations

import gc

import torch
from torch import Tensor

from autotune.scripting.quality.losses import LossRecorder
from autotune.scripting.quality.scalars import Scalars


def test_no_tensor_is_kept_for_a_loss() -> None:
    """Small tensors between the script's own would split the memory that those reuse."""

    def tensors() -> int:
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

    is_cpu = False  # type: ignore[assignment]

    def item(self) -> float:
        raise AssertionError("it would wait for the device")

    tolist = __float__ = item  # type: ignore[assignment]


def test_numbers_of_a_device_are_copied_into_memory_for_many_in_their_order() -> None:
    scalars, expected = Scalars(), []
    shared = torch.zeros(1).as_subclass(OnADevice)
    for number in range(2500):
        if number % 7:
            shared.fill_(number)
            scalars.append(shared)
        else:
            scalars.append(torch.tensor(float(number), requires_grad=True))
        expected.append(float(number))
    assert scalars.values() == expected
    assert len(scalars) == 2500
