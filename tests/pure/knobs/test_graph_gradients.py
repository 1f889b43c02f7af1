"""Gradients that CUDA graphs write to memory used again are copied before it is."""

import torch
from torch import nn

from autotune.knobs.compile import GraphGradients


def learnt(model):
    """Give each parameter a gradient, as a backward pass does, and return them."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    return gradients(model)


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def test_each_new_gradient_is_copied_once():
    model = nn.Linear(2, 1)
    kept = GraphGradients(model)
    kept.copy_out(model.parameters())
    written = learnt(model)
    kept.copy_out(model.parameters())
    copies = gradients(model)
    assert all(copies[name] is not written[name] for name in copies)
    kept.copy_out(model.parameters())
    assert all(gradients(model)[name] is copies[name] for name in copies)


def test_a_call_of_one_block_copies_the_gradients_of_all():
    """All graphs of a device write again as soon as one of them runs."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    kept = GraphGradients(model)
    kept.copy_out(model[0].parameters())
    written = learnt(model)
    kept.copy_out(model[0].parameters())
    assert all(gradients(model)[name] is not written[name] for name in written)


def test_gradients_in_memory_of_the_users_own_stay_there():
    """Some loops lay them out once, zero the memory and read it."""
    before, after = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
    flat = torch.zeros(2)
    for model, is_first in ((before, True), (after, False)):
        kept = GraphGradients(model)
        if not is_first:
            kept.copy_out(model.parameters())
        model.weight.grad = flat.view_as(model.weight)
        kept.copy_out(model.parameters())
        assert model.weight.grad.data_ptr() == flat.data_ptr()


def test_parameters_that_train_later_are_copied_too():
    model = nn.Linear(2, 1).requires_grad_(False)
    kept = GraphGradients(model)
    kept.copy_out(parameters := list(model.parameters()))
    model.requires_grad_(True)
    written = learnt(model)
    kept.copy_out(parameters)
    assert all(gradients(model)[name] is not written[name] for name in written)
