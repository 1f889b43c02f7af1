"""autotune: the settings under which a PyTorch model trains fastest on this machine.

`autotune.search` measures, `best.yaml` is the answer, `autotune.load` reads it back. Nothing heavy
is imported here: neither torch nor Optuna.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import MismatchError, MismatchWarning
from autotune.version import __version__

if TYPE_CHECKING:
    from autotune.notebook import SearchResult
    from autotune.production import Best

__all__ = ["MismatchError", "MismatchWarning", "__version__", "load", "search"]


def load(path: str | Path, *, strict: bool = False, model: str | Path | None = None) -> Best:
    """Read a best.yaml, checked against its schema and this machine, ready to be put into force.

    What differs from where it was found (CPU, cores, PyTorch, driver, model.py) is one
    `MismatchWarning` that names all of it. Which accelerator there is, is not looked at before
    `apply_to_process`, because only torch can tell.

    Args:
        path: the file.
        strict: raise instead of warning, here and in `apply_to_process`.
        model: the model.py that is trained; else the one that the file names, if it is there.

    Raises:
        UsageError: a file is missing or not valid, or was written by a newer autotune.
        MismatchError: something differs, and `strict` is set.
    """
    from autotune.best import read_best
    from autotune.mismatch import mismatches, report
    from autotune.production import Best

    answer = read_best(Path(path))
    report(str(path), mismatches(answer, None if model is None else Path(model)), strict=strict)
    return Best(answer, strict=strict)


def search(model: str | Path, **flags: Any) -> SearchResult:
    """Find the settings under which a model.py or a script trains fastest: `autotune search`.

    Keywords are the flags of the command line, with its defaults: space, trials, time_budget,
    study, storage, out, device, objective, run_samples, run_epochs, memory_headroom, memory_limit,
    accuracy_tolerance, min_accuracy, accuracy_samples, lr_scaling, baseline, trial_timeout,
    warm_start, sampler, seed, max_failures, progress. `autotune search --help` describes them.
    Values may be written as there ("10m", "8%") or as Python has them: seconds, bytes, shares, a
    dict for `baseline`, any Optuna sampler for `sampler`. For a training script: arguments (its
    own, as a list), allow, maps, metric_regex and metric_mode.

    The same study is continued by the same call. Nothing of the caller is imported by the processes
    that are timed, so a script needs no `if __name__ == "__main__"`.

    Raises:
        AutotuneError: as the command line does; `exit_code` says which.
        KeyboardInterrupt: somebody stopped it; finished trials are kept.
    """
    from autotune.notebook import run_search

    return run_search(model, flags)
