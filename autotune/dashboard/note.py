"""The note on a study in Markdown, for Optuna Dashboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from optuna import Study
from optuna.trial import FrozenTrial

from autotune.configuration.answer_words import keep_reason, not_proven_texts
from autotune.configuration.best_config import BestConfig
from autotune.configuration.constraints import CONSTRAINTS
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import spelled
from autotune.storage.finished_trial import revocation_of
from autotune.storage.note_types import Revocation
from autotune.storage.notes import StudyNotes
from autotune.storage.trial_details import REASON
from autotune.values.text import clean, rounds_text

OWN_MARK = "*Written by `autotune dashboard`"
"""Start of the last line of a note that the dashboard may rewrite, in all versions."""
OWN_LINE = f"{OWN_MARK}. Delete this line to keep your changes to this note.*"


def summary(study: Study, trials: Sequence[FrozenTrial], report: str) -> str:
    """Return the study's note: result, link to the report, trials, meaning of the numbers."""
    revocations = StudyNotes(study.user_attrs).revocations
    lines = [
        *_answer(study),
        *_report(report),
        *_trials(trials, revocations),
        *_meaning(),
        "",
        OWN_LINE,
    ]
    return "\n".join(lines)


def noted_answer(study: Study) -> BestConfig | None:
    """Return the content of best.yaml; None if the study has no readable result."""
    try:
        answer = StudyNotes(study.user_attrs).answer
    except ValueError:
        return None
    return None if answer is None else answer.best


def _answer(study: Study) -> Iterator[str]:
    best = noted_answer(study)
    if best is None:
        yield from ("## No answer yet", "", "`autotune search` writes best.yaml at its end.")
        return
    evidence, own = best.evidence, TrainingConfig.of(best.evidence.baseline.config)
    low, high = evidence.speedup.ci95
    if best.keeps_baseline:
        yield from ("## Keep your settings", "", keep_reason(evidence))
    else:
        yield f"## {evidence.speedup.ratio:.2f}x faster than your settings"
        yield ""
        rounds = rounds_text(evidence.speedup.rounds, evidence.speedup.disturbed_rounds)
        yield f"{low:.2f} to {high:.2f} with 95 % confidence, {rounds}."
    accuracy, memory = best.constraints.accuracy, best.constraints.memory
    changed = best.training_config.differences(own)
    yield from ("", "| | yours | answer |", "|---|---|---|")
    yield (
        f"| {evidence.rate_unit} {best.measured_in} | {evidence.baseline.samples_per_second:g} | "
        f"{evidence.best.samples_per_second:g} |"
    )
    if (tokens := evidence.tokens_per_second) is not None:
        yield f"| tokens/s {best.measured_in} | {tokens[0]:g} | {tokens[1]:g} |"
    if (joules := evidence.joules_per_sample) is not None:
        yield f"| J a sample, of {best.energy_of} | {joules[0]:g} | {joules[1]:g} |"
    if accuracy.is_measured:
        told = accuracy.difference_text
        yield (
            f"| {accuracy.metric} | {accuracy.baseline:g} | "
            f"{accuracy.best:g}{told and f', {told}'} |"
        )
        yield f"| allowed | | {accuracy.allowed_text} |"
        if accuracy.probe_text:
            yield f"| probes | | {accuracy.probe_text} |"
    else:
        yield f"| quality | | {accuracy.not_measured_text} |"
    yield f"| memory | | {memory.in_words} |"
    yield from (
        f"| {name} | {spelled(own[name])} | {spelled(value)} |" for name, value in changed.items()
    )
    yield from ("", *(f"- Not proven: {text}" for text in not_proven_texts(best)))
    yield from ("", "best.yaml is attached to this study.")


def _report(address: str) -> Iterator[str]:
    yield from ("", f"[The report]({address}) has the trials, their charts and what they show.")


def _trials(trials: Sequence[FrozenTrial], revocations: Mapping[str, Revocation]) -> Iterator[str]:
    lost = Counter(_reason(trial, revocations) for trial in trials if not _holds(trial))
    yield from ("", f"## {len(trials)} trials, {len(trials) - lost.total()} of them feasible", "")
    # Reasons are foreign text; as code, their markup has no effect.
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
        "- The answer's speed-up is not a trial's value: the confirmation timed it again, in turns "
        "with your settings.",
    )


def _reason(trial: FrozenTrial, revocations: Mapping[str, Revocation]) -> str:
    """Return the reason why a trial is infeasible, which may be a later revocation."""
    revocation = revocation_of(trial, revocations)
    later = None if revocation is None else revocation.reason
    return str(trial.user_attrs.get(REASON) or later or "a limit is exceeded")


def _holds(trial: FrozenTrial) -> bool:
    return all(margin <= 0 for margin in trial.constraints.values())


def _code(reason: str) -> str:
    return clean(reason).replace("`", "'").replace("\n", " ")
