"""Batches of every shape reach the device, images in the layout that was asked for.

The device "meta" stands for an accelerator: what lies there has really been moved.
"""

from collections import OrderedDict, defaultdict
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from autotune.configuration.training_config import TrainingConfig
from autotune.numerics.trajectory import nudge
from autotune.training.training_setup import apply, build_dataset

IMAGES = torch.zeros(2, 3, 4, 4)
LABELS = torch.tensor([0, 1])


class Pair(NamedTuple):
    images: Tensor
    labels: Tensor


class OwnBatch:
    """A batch that knows how to move itself, as those of some libraries do."""

    def __init__(self, tensor):
        self.tensor = tensor

    def to(self, device):
        return OwnBatch(self.tensor.to(device))


@pytest.fixture
def setup_on(workload):
    """A training setup that moves batches to a device, images channels last or not."""

    def make(device, channels_last):
        config = TrainingConfig.of({"channels_last": channels_last})
        setup = apply(config, workload, "cpu", seed=0, dataset=build_dataset(workload))
        return replace(setup, device=torch.device(device))

    return make


def tensors(batch):
    match batch:
        case Tensor():
            return [batch]
        case dict():
            return [tensor for value in batch.values() for tensor in tensors(value)]
        case tuple() | list():
            return [tensor for value in batch for tensor in tensors(value)]
    return []


@pytest.mark.parametrize(
    "batch",
    [
        IMAGES,
        (IMAGES, LABELS),
        [IMAGES, LABELS],
        {"images": IMAGES, "labels": LABELS},
        OrderedDict(images=IMAGES),
        Pair(IMAGES, LABELS),
        {"pairs": [Pair(IMAGES, LABELS), (IMAGES, {"deep": [LABELS]})]},
        defaultdict(list, images=IMAGES),
        pack_sequence([torch.zeros(3), torch.zeros(2)]),
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_a_batch_keeps_its_shape_and_its_tensors_are_moved(setup_on, batch):
    moved = setup_on("meta", False).transfer(batch)
    assert type(moved) is type(batch)
    data = moved.data if isinstance(moved, PackedSequence) else moved
    assert {tensor.device.type for tensor in tensors(data)} == {"meta"}


def test_keys_order_and_what_is_no_tensor_stay_as_they_are(setup_on):
    batch = {"ids": ["a", "b"], "images": IMAGES, "n": 2, "none": None}
    moved = setup_on("meta", False).transfer(batch)
    assert list(moved) == list(batch)
    assert (moved["ids"], moved["n"], moved["none"]) == (["a", "b"], 2, None)


def test_a_batch_with_a_method_of_its_own_is_moved_by_it(setup_on):
    assert setup_on("meta", False).transfer(OwnBatch(IMAGES)).tensor.device.type == "meta"


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_images_become_channels_last_wherever_they_are_in_a_batch(setup_on, device):
    moved = setup_on(device, True).transfer({"a": [IMAGES], "b": Pair(IMAGES, LABELS)})
    for images in (moved["a"][0], moved["b"].images):
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert not images.is_contiguous()


def test_a_tensor_that_is_no_image_nor_volume_keeps_its_layout(setup_on):
    moved = setup_on("cpu", True).transfer([torch.zeros(2, 3, 4), torch.zeros(2, 3, 4, 4, 4)])
    assert [tensor.is_contiguous() for tensor in moved] == [True, False]
    assert moved[1].is_contiguous(memory_format=torch.channels_last_3d)


def test_images_keep_their_layout_where_nothing_was_asked_for_and_their_values(setup_on):
    images = torch.arange(96.0).reshape(2, 3, 4, 4)
    assert setup_on("cpu", False).transfer(images).is_contiguous()
    assert torch.equal(setup_on("cpu", True).transfer(images), images)


def test_a_sharded_weight_is_changed_by_a_rounding(one_of_one):
    mesh = init_device_mesh("cpu", (1,))
    plain = torch.nn.Parameter(torch.ones(4, 2))
    sharded = torch.nn.Parameter(distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]))
    nudge([plain], 2.0**-10, seed=1)
    nudge([sharded], 2.0**-10, seed=1)
    assert sharded.full_tensor().equal(plain)
    assert 0 < (plain - 1).abs().max() <= 2.0**-10
    nudge([plain], 2.0**-10, seed=2)
    assert not sharded.full_tensor().equal(plain)
