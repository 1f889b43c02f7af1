"""The end of a search: hold the fastest trials to their promise, and write the answer."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator

from autotune.best import BestConfig, write_best
from autotune.errors import StorageError
from autotune.measurement import Measurement
from autotune.outcome import describe
from autotune.tuning.accuracy import SEEDS
from autotune.tuning.answer import Confirmed, build_answer, confirmed_by, keep_baseline
from autotune.tuning.confirm import Duel, duel
from autotune.tuning.events import Answered, CandidateRefused, Event, RoundEnded
from autotune.tuning.session import Accuracy, Session
from autotune.tuning.study import FinishedTrial

_MOST_CANDIDATES = 3
_NOTE = "answer"


def conclude(
    session: Session, runs: tuple[Measurement, ...], accuracy: Accuracy
) -> Iterator[Event]:
    """Confirm the fastest candidate that holds, or keep the baseline; write best.yaml."""
    won: Confirmed | None = None
    for trial in _candidates(session):
        won = yield from _confirm(session, accuracy, trial)
        if won is not None or session.over_budget():
            break
    if won is None:
        won = keep_baseline(session.baseline, runs, accuracy.rule.baseline)
    best = build_answer(session.scene, session.runner, accuracy.prober, accuracy.rule, won)
    trials = len(session.study.finished())
    session.study.note(_NOTE, {"trials": trials, "best": best.model_dump(mode="json")})
    yield emit(session, best)


def known_answer(session: Session) -> BestConfig | None:
    """The answer of an earlier run, where no trial came after it and none is left to come."""
    answer = session.study.noted(_NOTE)
    if answer is None or answer["trials"] != len(session.study.finished()):
        return None
    if session.budget_left():
        return None
    return BestConfig.model_validate_json(json.dumps(answer["best"]))


def emit(session: Session, best: BestConfig) -> Answered:
    """Write best.yaml.

    Raises:
        StorageError: the file cannot be written; the study keeps the answer.
    """
    out = session.scene.options.out
    try:
        write_best(best, out)
    except OSError as error:
        raise StorageError(
            f"{out} cannot be written: {error.strerror}. The study keeps the answer: free some "
            "space or choose another --out, and run the same command again."
        ) from error
    return Answered(best, out)


def _candidates(session: Session) -> list[FinishedTrial]:
    """The fastest feasible trials, fastest first; what was too slow to be probed yet included."""
    baseline = session.baseline.verdict.value or 0.0
    faster = [
        trial
        for trial in session.study.finished()[1:]
        if trial.verdict.feasible and (trial.verdict.value or 0.0) > baseline
    ]
    return sorted(faster, key=lambda t: -(t.verdict.value or 0.0))[:_MOST_CANDIDATES]


def _confirm(
    session: Session, accuracy: Accuracy, trial: FinishedTrial
) -> Generator[Event, None, Confirmed | None]:
    """Hold a candidate to accuracy over all seeds, then to a duel with the baseline."""
    qualities = accuracy.prober.qualities(trial.config, len(SEEDS))
    if not isinstance(qualities, tuple):
        yield CandidateRefused(trial, f"accuracy probe: {describe(qualities)}")
        return None
    if accuracy.rule.margin(qualities) > 0:
        yield CandidateRefused(trial, f"not accurate enough over {len(SEEDS)} seeds")
        return None
    state = Duel()
    folder = session.folder("confirm", f"{trial.number:04d}")
    for step in duel(session.scene, session.runner, trial.config, folder):
        if not isinstance(step, Duel):
            yield CandidateRefused(trial, describe(step))
            return None
        state = step
        yield RoundEnded(trial.config, state.ratios, state.interval)
    refusal = _refusal(session, state)
    if refusal:
        yield CandidateRefused(trial, refusal)
        return None
    return confirmed_by(state, trial, qualities)


def _refusal(session: Session, state: Duel) -> str:
    """Why a duel's candidate cannot be the answer; empty where it can."""
    peak = max(run.peak_memory_bytes for run in state.candidate)
    if peak > session.scene.memory_limit_bytes:
        return f"{peak} bytes of memory in a fresh process, over the limit"
    if not state.is_faster:
        low, high = state.interval
        return f"not faster beyond the noise: {low:.3f} to {high:.3f} times the baseline"
    return ""
