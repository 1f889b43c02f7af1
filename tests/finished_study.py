"""A finished study with everything that a search leaves, made in a second: nothing is trained."""

from pathlib import Path

from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Diagnosed, Loading, OutOfMemory, TrialOutcome
from scripted_runner import ScriptedRunner, at, batch_of, events_of, options_in

NAME = "scripted"
# Computing alone would reach 8 / 0.04 = 200 samples/s.
STAGES = Diagnosed(8, 0.04, None, 0.0, (Loading(0, 0.01), Loading(2, 0.02)), 0.02)
LOG = "RuntimeWarning: <b>no room</b> for a batch of 128\n"


def larger_is_faster(config: TrainingConfig, phase: str) -> TrialOutcome:
    """Up to a batch of 64; 128 does not fit."""
    batch = batch_of(config)
    if batch == 128:
        return OutOfMemory("host", "no room for [bold]\x1b[31m128")
    return at(100 + batch)


def runner() -> ScriptedRunner:
    """Measures what `larger_is_faster` says."""
    return ScriptedRunner(larger_is_faster, diagnosed=STAGES)


def finished_study(folder: Path) -> Path:
    """A study of five batch sizes in `folder`/studies/scripted, one of which does not fit."""
    place = folder / "studies" / NAME
    place.mkdir(parents=True)
    events_of(options_in(place), runner())
    logs = place / "trials" / "0004"
    logs.mkdir(parents=True)
    (logs / "stderr.log").write_text(LOG, encoding="utf-8")
    (logs / "stdout.log").touch()
    return place
