"""The summary of a study in Markdown, for people who open it in Optuna Dashboard."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optuna import Study
from optuna.trial import FrozenTrial
from pydantic import ValidationError

from autotune.best import NOT_MEASURED, BestConfig
from autotune.config import TrainingConfig
from autotune.constraints import CONSTRAINTS
from autotune.knobs.base import spelled
from autotune.text import clean, size
from autotune.tuning.confirming.conclusion import ANSWER
from autotune.tuning.drift import conditions
from autotune.tuning.storing.finished import RULINGS, ruling_on

OWN_LINE = "*Written by `autotune dashboard`, which keeps its hands off a note without this line.*"


def summary(study: Study, trials: Sequence[FrozenTrial]) -> str:
    """Answer, trials, and what the numbers mean."""
    rulings = study.user_attrs.get(RULINGS, {})
    lines = [*_answer(study), *_trials(trials, rulings), *_meaning(), "", OWN_LINE]
    return "\n".join(lines)


def noted_answer(study: Study) -> BestConfig | None:
    """The content of best.yaml; None while there is no answer, or none that can be read."""
    try:
        return BestConfig.model_validate_json(json.dumps(study.user_attrs[ANSWER]["best"]))
    except (KeyError, TypeError, ValidationError):
        return None


def trial_summary(
    trial: FrozenTrial, own: FrozenTrial, rulings: Mapping[str, Any], host: str | None = None
) -> str:
    """What became of a trial, which a list of trials that are all "complete" does not say.

    `rulings` is the study's note of that name; `host` is where its logs lie, if that has to be
    said.
    """
    if not _holds(trial):
        verdict = f"**Infeasible**: `{_code(_reason(trial, rulings))}`"
    elif trial.number == own.number:
        verdict = "**The baseline**: your own settings."
    else:
        verdict = "**Feasible.**"
    config = TrainingConfig.of(trial.user_attrs["config"])
    changed = config.differences(TrainingConfig.of(own.user_attrs["config"]))
    lines = [verdict, "", *(f"- {name}={spelled(value)}" for name, value in changed.items())]
    rate = trial.user_attrs.get("samples_per_second")
    value, before = (one.user_attrs.get("value") for one in (trial, own))
    if rate and value and before:
        notes = [f"{rate:.1f} samples/s", f"{value / before:.2f}x the baseline"]
        lines += ["", ", ".join([*notes, *conditions(trial.user_attrs)])]
    if host is not None:
        lines += ["", f"Its logs lie on `{_code(host)}`."]
    return "\n".join([*lines, "", OWN_LINE])


def _answer(study: Study) -> Iterator[str]:
    best = noted_answer(study)
    if best is None:
        yield from ("## No answer yet", "", "`autotune search` writes best.yaml at its end.")
        return
    evidence, own = best.evidence, TrainingConfig.of(best.evidence.baseline.config)
    low, high = evidence.speedup.ci95
    if best.keeps_baseline:
        yield from ("## Keep your settings", "", "Nothing was faster beyond the noise.")
    else:
        yield f"## {evidence.speedup.ratio:.2f}x faster than your settings"
        yield ""
        yield f"{low:.2f} to {high:.2f} with 95 % confidence, {evidence.speedup.rounds} rounds."
    accuracy, memory = best.constraints.accuracy, best.constraints.memory
    changed = best.training_config.differences(own)
    yield from ("", "| | yours | answer |", "|---|---|---|")
    yield f"| samples/s | {evidence.baseline.samples_per_second:g} | " + (
        f"{evidence.best.samples_per_second:g} |"
    )
    if accuracy.is_measured:
        yield f"| {accuracy.metric} | {accuracy.baseline:g} | {accuracy.best:g} |"
    else:
        yield f"| quality | | {NOT_MEASURED} |"
    yield f"| memory | | {size(memory.peak_bytes)} of {size(memory.limit_bytes)} |"
    yield from (
        f"| {name} | {spelled(own[name])} | {spelled(value)} |" for name, value in changed.items()
    )
    yield from ("", "best.yaml is attached to this study.")


def _trials(trials: Sequence[FrozenTrial], rulings: Mapping[str, Any]) -> Iterator[str]:
    lost = Counter(_reason(trial, rulings) for trial in trials if not _holds(trial))
    yield from ("", f"## {len(trials)} trials, {len(trials) - lost.total()} of them feasible", "")
    # A reason is text from elsewhere: as code, nothing in it means anything.
    yield from (f"- {count} x `{_code(reason)}`" for reason, count in lost.most_common())


def _meaning() -> Iterator[str]:
    yield from (
        "",
        "## What the numbers mean",
        "",
        "- Trial 0 is the baseline: your own settings.",
        f"- Constraints are {', '.join(CONSTRAINTS)}, in this order; above 0 a trial is infeasible "
        "and drawn in grey.",
        "- The value of an infeasible trial is kept below the best feasible one. What was measured "
        "is in `samples_per_second`.",
        "- No value of a trial is the answer's: that was measured again, in turns with yours.",
    )


def _reason(trial: FrozenTrial, rulings: Mapping[str, Any]) -> str:
    """Why a trial cannot be used; that may have been found out after it was told."""
    ruling = ruling_on(trial.number, trial.user_attrs, rulings) or {}
    return str(trial.user_attrs.get("reason") or ruling.get("reason") or "a limit is passed")


def _holds(trial: FrozenTrial) -> bool:
    return all(margin <= 0 for margin in trial.constraints.values())


def _code(reason: str) -> str:
    return clean(reason).replace("`", "'").replace("\n", " ")
