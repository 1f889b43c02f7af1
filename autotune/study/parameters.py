"""Configurations as parameters of Optuna, and back."""

from __future__ import annotations

from collections.abc import Mapping

from optuna.distributions import BaseDistribution, CategoricalDistribution

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig, check_settings
from autotune.knobs.base import Value


def distributions_of(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return Optuna's distributions of the knobs that vary."""
    return {name: CategoricalDistribution(values) for name, values in space.varied().items()}


def config_of(params: Mapping[str, Value], space: SearchSpace) -> TrainingConfig:
    """Return the configuration for Optuna's parameters, frozen knobs included.

    Raises:
        UsageError: parameters of a study that are no settings.
    """
    check_settings(params)
    return space.config(params)


def params_of(config: TrainingConfig, varied: Mapping[str, tuple[Value, ...]]) -> dict[str, Value]:
    """Return Optuna's parameters for a configuration.

    An idle knob has a value outside its domain; the first value of the domain stands for it.
    """
    return {
        name: config[name] if config[name] in values else values[0]
        for name, values in varied.items()
    }
