"""What the observed run of a made-up script with one loader and no loss told."""

from autotune.knobs.base import Value
from autotune.values.outcome import Observed, WorkloadFacts

OWN: dict[str, Value] = {"batch_size": 16, "num_workers": 0, "num_threads": 2}
SEEN = Observed(
    device="cpu",
    loaders=("train.py:9#0",),
    training_loader="train.py:9#0",
    steps_per_second=50.0,
    samples_per_second=800.0,
    wait_share=0.4,
    fixed={},
    workload=WorkloadFacts(10_000, False, True, False, OWN, 18),
)
