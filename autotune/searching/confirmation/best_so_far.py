"""`best-so-far.yaml`, a file with the incumbent that is clearly marked as unconfirmed.

It is written whenever the incumbent changes, so that it exists however the search ends, and removed
when best.yaml is written. It has no format number, so that neither `autotune.load` nor any command
accepts it: the best of many trials is mostly the luckiest, and a result needs confirmation.
"""

from __future__ import annotations

from pathlib import Path

from autotune.context.options import SearchOptions
from autotune.process.common.trial_folder import write_atomically
from autotune.study.finished import FinishedTrial
from autotune.values.strict_yaml import dump

NAME = "best-so-far.yaml"


def path_so_far(options: SearchOptions) -> Path:
    """Return the file's path in the study's folder."""
    return options.study.folder / NAME


def write_so_far(options: SearchOptions, best: FinishedTrial, baseline: FinishedTrial) -> None:
    """Write the incumbent; remove the file if that is the baseline.

    Raises:
        OSError: the file cannot be written.
    """
    if best.number == baseline.number:
        forget_so_far(options)
        return
    data = {
        "unconfirmed": True,
        "note": "The fastest trial so far. It was timed once, beside many others, and never "
        "confirmed: let the search end, which writes best.yaml.",
        "study": options.study.name,
        "trial": best.number,
        "config": best.config.as_dict(),
        "samples_per_second": best.details.samples_per_second,
        "baseline_samples_per_second": baseline.details.samples_per_second,
    }
    write_atomically(path_so_far(options), dump(data))


def forget_so_far(options: SearchOptions) -> None:
    """Remove the file if it exists."""
    path_so_far(options).unlink(missing_ok=True)
