"""Learning rates are scaled when the batch size changes."""

import pytest
import torch

from autotune.configuration.training_config import LR_RULES, TrainingConfig, lr_factor
from autotune.training.training_setup import apply, build_dataset, scale_learning_rates
from autotune.training.workload import load_workload
from children import WORKLOADS


@pytest.mark.parametrize(
    ("rule", "batch_size", "factor"),
    [
        *(("none", 512, 1.0), ("linear", 64, 1.0), ("linear", 256, 4.0), ("linear", 32, 0.5)),
        ("linear", 4096, 8.0),  # 64 times the batch is beyond where the linear rule holds
        ("sqrt", 256, 2.0),
        ("sqrt", 4096, 8.0),
        ("sqrt", 16, 0.5),
    ],
)
def test_the_factor_follows_the_batch_size(rule, batch_size, factor):
    assert lr_factor(rule, batch_size, 64) == pytest.approx(factor)


def test_the_command_line_offers_exactly_the_rules_that_exist():
    from autotune.cli import cli

    (choice,) = [o.type for o in cli.commands["search"].params if o.name == "lr_scaling"]
    assert tuple(choice.choices) == LR_RULES


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_every_group_of_the_optimizer_gets_the_factor(factor):
    workload = load_workload(WORKLOADS / "two_rates.py")
    config = TrainingConfig.of({"batch_size": 8})
    setup = apply(config, workload, "cpu", 0, build_dataset(workload))
    scale_learning_rates(setup.optimizer, factor)
    rates = [float(group["lr"]) for group in setup.optimizer.param_groups]
    assert rates == pytest.approx([0.25 * factor, 0.125 * factor])


def test_a_rate_that_is_a_tensor_shared_by_groups_is_scaled_once():
    rate = torch.tensor(0.5)
    weights = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": w} for w in weights], lr=rate)
    scale_learning_rates(optimizer, 2.0)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [1.0, 1.0]
    assert float(rate) == 0.5
