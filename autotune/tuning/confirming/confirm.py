"""Whether a candidate is really faster than the baseline: paired, in turns, in fresh processes.

The best of many noisy measurements looks better than it is, so no number from the search is ever
emitted. Candidates that the search could not tell apart are sifted in a first block of rounds; one
goes on, so that a contest costs little more than a duel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from autotune.config import TrainingConfig
from autotune.intervals import CONFIDENCE
from autotune.knobs import KNOBS
from autotune.measurement import Measurement
from autotune.outcome import Failure, describe
from autotune.tuning.confirming.belief import Beliefs, beliefs_after
from autotune.tuning.confirming.rounds import Contestant, Course, Duel, orders, play_round

# At the last look, two rounds may have gone against the candidate; no look allows more.
_MOST_LOSSES = 2
# Before, nobody leaves for being slower than another.
_FEWEST_ROUNDS = 2
# Who is slower by no more than this, as a logarithm, is as fast.
_AS_FAST = 0.01


def looks(family: int) -> tuple[int, ...]:
    """Numbers of rounds after which to decide, with `family` candidates put to the test in all.

    The fewest whose interval is the range of the ratios, the fewest whose interval drops the
    extreme on either side, and two of them, at a confidence that holds for all candidates together
    (Bonferroni).
    """
    allowed = (1 - CONFIDENCE) / family
    return tuple(_fewest(losses, allowed) for losses in range(_MOST_LOSSES + 1))


def _fewest(losses: int, allowed: float) -> int:
    """Rounds of which so many lost ones are no more likely by chance, on either side."""
    return next(n for n in range(1, 100) if 2 * _ways(n, losses) / 2**n <= allowed)


def _ways(rounds: int, losses: int) -> int:
    return sum(math.comb(rounds, lost) for lost in range(losses + 1))


LOOKS = looks(1)


def rounds_to_win(gain: float, noise: float) -> int:
    """Rounds after which one candidate has probably won that gains so much over the baseline.

    Both as logarithms: what it gains, and by how much a timing is off. A round compares two.
    """
    lost = 0.5 * math.erfc(gain / (2 * noise))
    enough = (rounds for most, rounds in enumerate(LOOKS) if rounds * lost <= most + 0.5)
    return next(enough, LOOKS[-1])


_NO_BELIEFS: Beliefs = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Standing:
    """A contest after a round."""

    duels: Mapping[Contestant, Duel]
    """Everyone who was timed in this round."""
    refused: Mapping[Contestant, str]
    """Who cannot be the answer, and why."""
    set_aside: Mapping[Contestant, Contestant]
    """Who may still be, but only if another fails: the one that goes on instead."""
    winner: Contestant | None = None

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return max((len(duel.ratios) for duel in self.duels.values()), default=0)


def contest(
    course: Course, candidates: Sequence[Contestant], family: int, beliefs: Beliefs = _NO_BELIEFS
) -> Iterator[Standing]:
    """The standing after each round, until one of the candidates has won or none is left.

    `beliefs` is what is known of their order beforehand. That one is faster than the baseline is
    for the rounds alone to show.
    """
    confidence = 1 - (1 - CONFIDENCE) / family
    duels = {candidate: Duel(confidence=confidence) for candidate in candidates}
    decisions, block = looks(family), len(candidates) + 1
    places = orders(block, course.seed)
    for rounds in range(1, decisions[-1] + 1):
        before = len(duels)
        duels, refused = _play(course, duels, next(places), rounds - 1)
        played = dict(duels)
        refused |= _beaten(duels)
        duels = _without(duels, refused)
        aside = _set_aside(course, duels, beliefs, sift=rounds == block)
        duels = _without(duels, aside)
        won = {c: d for c, d in duels.items() if rounds in decisions and d.is_faster}
        winner = preferred(course.baseline.config, won, beliefs) if won else None
        yield Standing(played, refused, aside, winner)
        if winner is not None or not duels:
            return
        if len(duels) < before:
            places = orders(len(duels) + 1, course.seed + rounds)


def preferred(
    baseline: TrainingConfig, duels: Mapping[Contestant, Duel], beliefs: Beliefs = _NO_BELIEFS
) -> Contestant:
    """The fastest, or who is as fast as that with fewer changes, or with as many in less memory."""
    now = beliefs_after(beliefs, duels)
    most = max(belief.mean for belief in now.values())
    tied = [one for one, belief in now.items() if belief.mean >= most - _AS_FAST]
    return min(
        tied,
        key=lambda one: (
            changes(one.config, baseline),
            duels[one].peak_memory_bytes,
            -now[one].mean,
        ),
    )


def changes(config: TrainingConfig, baseline: TrainingConfig) -> int:
    """Settings that a person would have to change; what only follows from another is none."""
    changed = config.differences(baseline)
    followers = {
        name
        for name, value in changed.items()
        if KNOBS[name].needs in changed and value in (KNOBS[name].default, KNOBS[name].idle)
    }
    return len(changed) - len(followers)


def _play(
    course: Course, duels: Mapping[Contestant, Duel], places: Sequence[int], number: int
) -> tuple[dict[Contestant, Duel], dict[Contestant, str]]:
    """The duels with one more round, and who failed in it."""
    field = (course.baseline, *duels)
    results = play_round(course, [field[place] for place in places], number)
    reference = results.get(course.baseline.name)
    played: dict[Contestant, Duel] = {}
    refused: dict[Contestant, str] = {}
    for candidate, duel in duels.items():
        timed = results.get(candidate.name)
        fault = _fault(course, timed, reference)
        if fault:
            refused[candidate] = fault
            continue
        assert isinstance(timed, Measurement)
        assert isinstance(reference, Measurement)
        ratio = course.ratio(candidate.config, timed, reference)
        played[candidate] = duel.after(reference, timed, ratio)
    return played, refused


def _fault(
    course: Course, timed: Measurement | Failure | None, reference: Measurement | Failure | None
) -> str:
    """Why a round says nothing for a candidate; empty where it does."""
    limit = course.memory_limit_bytes
    if timed is not None and not isinstance(timed, Measurement):
        return describe(timed)
    if timed is not None and limit is not None and timed.peak_memory_bytes > limit:
        return f"{timed.peak_memory_bytes} bytes of memory in a fresh process, over the limit"
    if timed is not None and timed.allocator_retries:
        return "the allocator had to give memory back in a fresh process: the edge of the limit"
    if timed is not None and not timed.can_win:
        return "never steady in a fresh process"
    if reference is not None and not isinstance(reference, Measurement):
        return f"your settings failed beside it: {describe(reference)}"
    return ""


def _beaten(duels: Mapping[Contestant, Duel]) -> dict[Contestant, str]:
    """Who can no longer win at any look, or hardly; at the last one, all others have."""
    beaten = {}
    for candidate, duel in duels.items():
        if duel.losses > _MOST_LOSSES or _is_even(duel):
            low, high = duel.interval
            beaten[candidate] = (
                f"not faster beyond the noise: {low:.3f} to {high:.3f} times the baseline"
            )
    return beaten


def _is_even(duel: Duel) -> bool:
    """Whether several rounds were lost, and no more were won."""
    return duel.losses > 1 and 2 * duel.losses >= len(duel.ratios)


def _set_aside(
    course: Course, duels: Mapping[Contestant, Duel], beliefs: Beliefs, sift: bool
) -> dict[Contestant, Contestant]:
    """Who need not run on beside whom: the clearly slower, and after the sift all but one."""
    if len(duels) < 2:  # noqa: PLR2004
        return {}
    if sift:
        best = preferred(course.baseline.config, duels, beliefs)
        return {one: best for one in duels if one != best}
    if min(len(duel.ratios) for duel in duels.values()) < _FEWEST_ROUNDS:
        return {}
    now = beliefs_after(beliefs, duels)
    leader = max(now, key=lambda one: now[one].mean)
    return {one: leader for one in duels if now[one].is_clearly_below(now[leader])}


def _without(
    duels: Mapping[Contestant, Duel], gone: Mapping[Contestant, object]
) -> dict[Contestant, Duel]:
    return {one: duel for one, duel in duels.items() if one not in gone}
