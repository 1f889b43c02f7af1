"""Settings under which a PyTorch model trains fastest on this machine.

`autotune.search` measures and writes `best.yaml`; `autotune.load` reads it back. This module
imports neither torch nor Optuna.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.values.errors import MismatchError, MismatchWarning

if TYPE_CHECKING:
    from autotune.notebook import SearchResult
    from autotune.production import Best

__version__ = "0.1.0"

__all__ = ["MismatchError", "MismatchWarning", "__version__", "load", "search"]


def load(
    path: str | Path,
    *,
    strict: bool = False,
    model: str | Path | None = None,
) -> Best:
    """Read a best.yaml and check it against its schema and this machine.

    One `MismatchWarning` names every difference from the recorded machine: CPU, cores, PyTorch,
    driver, model.py, NVIDIA's GPU.

    Args:
        path: path of the best.yaml.
        strict: raise instead of warning, here and in `apply_to_process`.
        model: the model.py to be trained. Default: the one that the file names, if it exists.

    Returns:
        The settings with methods that apply them.

    Raises:
        UsageError: a file is missing or not valid, or was written by a newer autotune.
        MismatchError: something differs, and `strict` is set.
    """
    from autotune.configuration.best_config import read_best
    from autotune.configuration.mismatch import mismatches, report
    from autotune.production import Best

    answer = read_best(Path(path))
    report(str(path), mismatches(answer, None if model is None else Path(model)), strict=strict)
    return Best(answer, strict=strict)


def search(model: str | Path, **flags: Any) -> SearchResult:
    """Find the settings under which a model.py or a script trains fastest, as `autotune search`.

    The same call continues the same study. The timed processes do not import the calling module,
    so it needs no `if __name__ == "__main__"`.

    Args:
        model: path of the model.py or the training script.
        flags: the flags of `autotune search`, which `autotune search --help` describes, with the
            same defaults: space, without, trials, time_budget, study, storage, out, device,
            objective, target_samples, target_epochs, memory_limit, accuracy_tolerance,
            min_accuracy, accuracy_samples, lr_scaling, effective_batch, baseline, deterministic,
            trial_timeout, warm_start, sampler, seed, max_failures, fresh_data, nproc_per_node,
            launcher, progress. A training script also takes arguments (a list), as_module,
            exact_only, maps, no_map, preset, metric_regex, metric_mode, workdir and temp_workdir.
            Values are text as on the command line ("10m", "8%") or Python values: seconds, bytes,
            shares, a dict for `baseline`, any Optuna sampler.

    Raises:
        AutotuneError: the error of the command line; `exit_code` is its exit code.
        KeyboardInterrupt: the search was stopped; finished trials are kept.
    """
    from autotune.notebook import run_search

    return run_search(model, flags)
