"""The fastest trial so far, as a file that nobody takes for the answer: `best-so-far.yaml`.

It is written whenever a trial takes the lead, so that it is there however the search ends, and
removed when best.yaml is written. It has no format number and says that it is not confirmed, so
that neither `autotune.load` nor any command takes it: a number from the search is that of the
luckiest of many trials, and nothing is emitted that was not measured again.
"""

from __future__ import annotations

from pathlib import Path

from autotune.strict_yaml import dump
from autotune.trial_folder import write_atomically
from autotune.tuning.scene import SearchOptions
from autotune.tuning.storing.finished import FinishedTrial

NAME = "best-so-far.yaml"


def path_so_far(options: SearchOptions) -> Path:
    """In the study's folder, which can be written if the study can."""
    return options.folder / NAME


def write_so_far(options: SearchOptions, best: FinishedTrial, baseline: FinishedTrial) -> None:
    """Say which trial leads; no file where that is the baseline itself.

    Raises:
        OSError: it cannot be written.
    """
    if best.number == baseline.number:
        forget_so_far(options)
        return
    data = {
        "unconfirmed": True,
        "note": "The fastest trial so far. It was timed once, beside many others, and never "
        "confirmed: let the search end, which writes best.yaml.",
        "study": options.study,
        "trial": best.number,
        "config": best.config.as_dict(),
        "samples_per_second": best.details.get("samples_per_second"),
        "baseline_samples_per_second": baseline.details.get("samples_per_second"),
    }
    write_atomically(path_so_far(options), dump(data))


def forget_so_far(options: SearchOptions) -> None:
    """Remove the file: there is an answer."""
    path_so_far(options).unlink(missing_ok=True)
