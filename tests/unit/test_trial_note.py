"""The note of a trial in Optuna Dashboard."""

from __future__ import annotations

import optuna
import pytest

from autotune.dashboard.note import trial_summary
from autotune.storage.note_types import Revocation

CONFIG = {"batch_size": 8, "num_threads": 2}


def told(number: int, *constraints: float) -> optuna.trial.FrozenTrial:
    """A finished trial as Optuna has it."""
    attributes = {"config": CONFIG, "reason": "", "trained_as": "larger"}
    trial = optuna.trial.create_trial(
        value=1.0, user_attrs=attributes, system_attrs={"constraints": list(constraints)}
    )
    trial.number = number
    return trial


@pytest.mark.parametrize("name", ["larger", "trial 7"])
def test_a_revocation_after_a_trial_was_told_is_its_reason(name: str) -> None:
    revocations = {name: Revocation(margin=0.2, reason="accuracy: 20 % worse than allowed")}
    note = trial_summary(told(7, -0.5, 0.2, -1.0), told(0, -0.5, -0.2, -1.0), revocations)
    assert note.startswith("**Infeasible**: `accuracy: 20 % worse than allowed`")
