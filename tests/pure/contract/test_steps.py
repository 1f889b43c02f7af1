"""What acts as an optimizer steps: the collector, and groups of parameters that are one."""

import copy
import gc
import os
from dataclasses import replace
from inspect import signature
from types import SimpleNamespace

import pytest
import torch
from torch import nn, optim
from torch.optim.lr_scheduler import LambdaLR

from autotune.knobs import KNOBS
from autotune.knobs.stepping import has_equal_groups, merged
from factories import IMAGE_FACTS

COLLECTOR, MERGING = KNOBS["gc"], KNOBS["merge_param_groups"]
OPTIMIZERS = [
    kind
    for kind in vars(optim).values()
    if isinstance(kind, type)
    and issubclass(kind, optim.Optimizer)
    and kind not in (optim.Optimizer, optim.LBFGS, optim.SparseAdam)
]


def stepping(count, optimizer=None):
    """Take steps with an optimizer, a new one if there is none."""
    optimizer = optimizer or optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    for _ in range(count):
        optimizer.step()
    return optimizer


@pytest.mark.parametrize(("collections", "matters"), [(None, True), (0.0, False), (2.5, True)])
def test_a_collector_that_hardly_runs_is_left_alone(collections, matters):
    facts = replace(IMAGE_FACTS, collections=collections)
    assert (COLLECTOR.irrelevance(facts) is None) is matters


def test_older_objects_are_frozen_after_three_steps_and_the_collector_stays_on():
    COLLECTOR.on_process("frozen")
    optimizer = stepping(2)
    assert COLLECTOR.read_back(None) is None
    assert gc.get_freeze_count() == 0
    stepping(1, optimizer)
    assert COLLECTOR.read_back(None) == "frozen"
    assert gc.get_freeze_count() > 1000
    assert gc.isenabled()


def test_a_number_collects_after_so_many_steps_alone():
    COLLECTOR.on_process(10)
    optimizer = stepping(12)
    assert not gc.isenabled()
    ring = []
    ring.append(ring)
    last = Watched(ring)
    del ring
    assert not last.is_freed
    stepping(1, optimizer)
    assert last.is_freed
    assert COLLECTOR.read_back(None) == 10
    gc.enable()
    assert COLLECTOR.read_back(None) is None


class Watched:
    """Whether an object that is in a cycle was freed."""

    def __init__(self, ring):
        self.is_freed = False
        ring.append(_Last(self))


class _Last:
    def __init__(self, watched):
        self.watched = watched

    def __del__(self):
        self.watched.is_freed = True


def test_the_objects_of_one_training_are_freed_in_the_next():
    COLLECTOR.on_process("frozen")
    first = stepping(3)
    assert gc.get_freeze_count()
    second = stepping(1)
    assert not gc.get_freeze_count()
    for _ in range(2):  # two that alternate are frozen for good
        stepping(1, first)
        stepping(1, second)
    assert gc.get_freeze_count()
    stepping(2, first)
    assert COLLECTOR.read_back(None) == "frozen"


def test_a_fork_collects_as_usual():
    COLLECTOR.on_process(10)
    stepping(3)
    if (child := os.fork()) == 0:
        os._exit(gc.isenabled())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert not gc.isenabled()


def test_the_collector_is_left_as_it_was():
    COLLECTOR.on_process(10)
    stepping(3)
    COLLECTOR.on_process(None)
    assert gc.isenabled()
    assert not gc.get_freeze_count()
    stepping(5)
    assert not gc.get_freeze_count()


def is_merged(optimizer):
    return MERGING.read_back(SimpleNamespace(optimizer=optimizer))


def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 2))


def in_groups(kind, model, **options):
    """An optimizer with a group for each parameter, in two kinds by turns."""
    groups = [
        {"params": [weight], "lr": 0.01 * (1 + place % 2), "name": f"group {place}"}
        for place, weight in enumerate(model.parameters())
    ]
    return kind(groups, **options)


def trained(kind, value, steps=3, **options):
    """The weights, and the optimizer, after some steps with a scheduler for each group."""
    model = layers()
    if kind is optim.Muon:
        model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(4)))
    MERGING.on_process(value)
    optimizer = in_groups(kind, model, **options)
    scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().sum().backward()
        optimizer.step()
        scheduler.step()
    return model, optimizer


IMPLEMENTATIONS = [
    pytest.param(kind, options, id=f"{kind.__name__}-{''.join(options)}")
    for kind in OPTIMIZERS
    for options in ({}, {"foreach": True}, {"fused": True})
    if options.keys() <= signature(kind).parameters.keys()
]


@pytest.mark.parametrize(("kind", "options"), IMPLEMENTATIONS)
def test_a_merged_update_is_the_same_bit_for_bit(kind, options):
    model, optimizer = trained(kind, False, **options)
    assert not is_merged(optimizer)
    other, found = trained(kind, True, **options)
    assert is_merged(found)
    assert all(map(torch.equal, model.parameters(), other.parameters()))
    one, two = optimizer.state_dict(), found.state_dict()
    assert one["param_groups"] == two["param_groups"]
    assert str(sorted(one["state"].items())) == str(sorted(two["state"].items()))
    assert [group["name"] for group in found.param_groups] == [
        f"group {place}" for place in range(len(found.param_groups))
    ]


def test_a_step_sees_one_group_of_each_kind_and_hooks_see_all():
    MERGING.on_process(True)
    optimizer = in_groups(optim.AdamW, layers(), foreach=True)
    own, seen = optimizer.param_groups, []
    optimizer.register_step_pre_hook(lambda it, *_: seen.append(it.param_groups is own))
    optimizer.register_step_post_hook(lambda it, *_: seen.append(it.param_groups is own))
    inside = []

    def fail(group, *_):
        inside.append(len(group["params"]))
        raise KeyboardInterrupt

    optimizer._init_group = fail
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert optimizer.param_groups is own
    del optimizer._init_group
    optimizer.step()
    assert seen == [True, True, True]
    assert inside == [3]


def test_a_closure_runs_once_with_the_groups_of_the_script():
    MERGING.on_process(True)
    model = layers()
    optimizer, seen = in_groups(optim.SGD, model), []

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).square().sum()
        loss.backward()
        seen.append(len(optimizer.param_groups))
        return loss

    before = copy.deepcopy(model)
    loss = optimizer.step(closure)
    assert loss.item() == before(torch.ones(3, 4)).square().sum().item()
    assert seen == [5]
    assert is_merged(optimizer)


class Own(optim.SGD):
    """An optimizer of a script's own, which may address its groups."""

    def step(self, closure=None):
        assert len(self.param_groups) == 5
        return super().step(closure)


def test_what_differs_or_is_the_scripts_own_stays_apart():
    model = layers()
    assert has_equal_groups(in_groups(optim.SGD, model))
    assert len(merged(in_groups(optim.SGD, model))) == 2
    assert not has_equal_groups(in_groups(Own, model))
    MERGING.on_process(True)
    assert not is_merged(stepping(1, in_groups(Own, model)))
    optimizer = in_groups(optim.SGD, model)
    assert is_merged(stepping(1, optimizer))
    for place, group in enumerate(optimizer.param_groups):
        group["lr"] = 0.1 + place
    assert not is_merged(stepping(1, optimizer)), "a scheduler set the groups apart"


def test_groups_of_other_devices_and_rates_in_tensors_stay_apart():
    rate = torch.tensor(0.1)
    apart = [
        {"params": [torch.zeros(1)], "lr": rate},
        {"params": [torch.zeros(1)], "lr": rate},
        {"params": [torch.zeros(1)], "lr": torch.tensor(0.1)},
        {"params": [torch.zeros(1, device="meta")], "lr": rate},
    ]
    optimizer = optim.Adam(apart, foreach=False, betas=[0.9, 0.99])
    assert [len(group["params"]) for group in merged(optimizer)] == [2, 1, 1]


def test_a_class_whose_step_torch_has_hooked_already_is_merged_within_its_hooks(monkeypatch):
    stepping(1, optim.Rprop(layers().parameters()))
    monkeypatch.setattr(optim.Rprop, "step", _plain(optim.Rprop.step))
    optimizer = in_groups(optim.Rprop, layers())
    assert optim.Rprop.step.hooked
    MERGING.on_process(True)
    in_groups(optim.Rprop, layers())  # torch hooks the class again
    seen = []
    optimizer.register_step_post_hook(lambda it, *_: seen.append(len(it.param_groups)))
    optimizer.step()
    assert seen == [5]
    assert is_merged(optimizer)


def _plain(step):
    """The step as torch wrote it, without what a test before put around it."""
    while hasattr(step, "hooked") or hasattr(step, "merges_groups"):
        step = step.__wrapped__
    return step
