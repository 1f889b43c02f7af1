"""What a trial would cost: that is what its promise has to be worth.

A kind of training that was never probed costs seeds of accuracy, which may take several times as
long as timing it. A sampler that knows what each proposal costs tries what is cheap first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from autotune.config import TrainingConfig
from autotune.tuning.judging.accuracy import SEED_SECONDS, probe_seconds
from autotune.tuning.reserve import trial_seconds
from autotune.tuning.session import Accuracy, Session

# What a kind of training takes on average before it is refused or leads.
_SEEDS = 2


def expense(
    session: Session, accuracy: Accuracy
) -> Callable[[Sequence[TrainingConfig]], list[float]]:
    """Tells the seconds that trials of configurations would take, their accuracy included."""

    def seconds_of(configs: Sequence[TrainingConfig]) -> list[float]:
        a_trial = median(map(trial_seconds, session.study.finished()))
        a_seed = float(session.study.noted(SEED_SECONDS, probe_seconds(session.scene)))
        unknown = accuracy.prober.unknown(configs)
        return [a_trial + _SEEDS * a_seed * new for new in unknown]

    return seconds_of
