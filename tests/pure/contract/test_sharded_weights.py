"""Weights that several processes hold in parts are changed where they lie."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from autotune.numerics.trajectory import nudge


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
