"""Statistics of timings and of qualities: ratios of sums with intervals, the non-inferiority test.

A training pays the mean of its steps, the rare slow ones included. So a speed is seconds over
samples, and a speed-up one sum of seconds over another. Their intervals are those of a jackknife,
which leaves out one part at a time and needs no assumption on how the parts are distributed.

Qualities are compared over paired seeds. The non-inferiority test does not ask for a significant
difference, which noise hides. It asks for evidence that the candidate is worse by no more than the
tolerance. It accepts at a few numbers of seeds only, which share 5 %: a configuration that is worse
by exactly the tolerance is accepted with that risk in all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from statistics import NormalDist, fmean, mean, pstdev, stdev
from typing import Literal

CONFIDENCE = 0.95
SEED_COUNTS = (3, 6, 12)
"""Numbers of seeds at which a configuration may be accepted.

Three show a spread. Each further test takes as many seeds again. Twelve halve the noise of three,
and halving it once more would take 36 more.
"""


ONE_CONFIDENCE = 0.95
"""One-sided confidence of one decision on the values."""
EACH_CONFIDENCE = 0.98
"""Confidence at each of `SEED_COUNTS`. Tests on the same seeds agree: three have 95 %, not 94."""
# One seed alone, which has no spread, rejects a loss above this many times the allowed one. After
# that, only seeds better than the baseline's, by half of the allowed on average, could accept.
_FAR_OFF = 5

# Steps below this share of the greatest quality are not looked for: there are none to be found
# between rounding errors, and they are small compared with 1 %.
_LEAST_STEP = 1e-4

# Share of the samples so far over which a loss is smoothed, and the fewest, as a share of the usual
# short training: the mean of a few samples may be low by chance.
_SMOOTHED, _FEWEST_SMOOTHED = 1 / 5, 1 / 50
# Standard errors of a smoothed loss by which it has to fall: all earlier ones are compared with it.
_BEYOND_NOISE = 4

Interval = tuple[float, float]
Part = tuple[float, float]
"""Numerator and denominator that one block, or one round, adds to a ratio of sums."""
Reached = tuple[float, float, bool]
"""Samples of a training until its loss, or the most; its last loss; whether it fell until then."""
Decision = Literal["accept", "reject", "undecided"]


def ratio_of(parts: Sequence[Part]) -> float:
    """Return the sum of the first numbers over the sum of the second."""
    return sum(above for above, _ in parts) / sum(below for _, below in parts)


def ratio_interval(parts: Sequence[Part], confidence: float = CONFIDENCE) -> Interval:
    """Return the confidence interval of `ratio_of`, by a jackknife on a log scale.

    Leaving out one part at a time shows how much the ratio owes to each. The deviation of the
    logarithm follows from that (Efron and Stein, 1981), the quantile is Student's t. A single part
    shows no spread; the interval is then just its ratio. All numbers are positive.

    Raises:
        ValueError: no parts.
    """
    if not parts:
        raise ValueError("ratio_interval needs at least one part")
    ratio, half = ratio_of(parts), 0.0
    if len(parts) > 1:
        half = student((1 + confidence) / 2, len(parts) - 1) * log_deviation(parts)
    return ratio * math.exp(-half), ratio * math.exp(half)


def combined(ratio: float, *factors: Interval) -> Interval:
    """Return the interval of a product of independent factors from theirs, on a log scale."""
    half = math.hypot(*(math.log(high / low) / 2 for low, high in factors))
    return ratio * math.exp(-half), ratio * math.exp(half)


def log_deviation(parts: Sequence[Part]) -> float:
    """Return the standard error of the logarithm of `ratio_of`, from two parts or more."""
    above, below = sum(part[0] for part in parts), sum(part[1] for part in parts)
    without = [math.log((above - part[0]) / (below - part[1])) for part in parts]
    middle, count = fmean(without), len(parts)
    return math.sqrt((count - 1) / count * sum((one - middle) ** 2 for one in without))


@cache
def student(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t; `probability` from 0.5 to 1, `freedom` 1 or more.

    By bisection, since importing scipy takes a second.
    """
    low, high = 0.0, 1.0
    while _student_below(high, freedom) < probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _student_below(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return high


def _student_below(t: float, freedom: int) -> float:
    """Return the probability that Student's t lies below `t` (Abramowitz and Stegun, 26.7.3-4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for power in range(1 + is_odd, freedom, 2):
        total += term
        term *= cosine * cosine * power / (power + 1)
    inside = (angle + sine * total) * 2 / math.pi if is_odd else sine * total
    return 0.5 + inside / 2


class LossCurve:
    """The smoothed loss of a training: at each step, the mean over the last fifth of its samples.

    A share of the samples so far delays all curves by the same factor. So the ratio of the samples
    that two trainings need for a loss owes nothing to the smoothing.
    """

    def __init__(self, usual: int, most: int, loss: float | None) -> None:
        """Follow a training until it reaches `loss`, on `most` samples at most.

        Without a loss, it trains on the `usual` number of samples, and reaches the last one.
        """
        self.samples = usual if loss is None else most
        """Samples after which it ends in any case."""
        self.has_reached = False
        self._fewest, self._most, self._loss = _FEWEST_SMOOTHED * usual, most, loss
        self._ends, self._sums, self._first = [0.0], [0.0], 0
        self._points: list[Part] = []

    def add(self, samples: float, loss: float) -> None:
        """Add a step on so many samples."""
        self._ends.append(end := self._ends[-1] + samples)
        self._sums.append(self._sums[-1] + samples * loss)
        start = end - max(_SMOOTHED * end, self._fewest)
        if start < 0:
            return
        while self._ends[self._first + 1] <= start:
            self._first += 1
        (left, right), (before, after) = (
            known[self._first : self._first + 2] for known in (self._ends, self._sums)
        )
        before += (after - before) * (start - left) / (right - left)
        smoothed = (self._sums[-1] - before) / (end - start)
        self._points.append((end, smoothed))
        self.has_reached |= self._loss is not None and smoothed <= self._loss

    @property
    def reached(self) -> Reached | None:
        """See `Reached`; None without a step."""
        if not self._points:
            return None
        _, last = self._points[-1]
        samples = self._until(last if self._loss is None else self._loss) or self._most
        return samples, last, self._falls()

    def _falls(self) -> bool:
        """Return whether its first half was above its last value beyond the noise.

        Otherwise chance decides when it first passes. Neighbouring steps show the noise.
        """
        end, last = self._points[-1]
        losses = [
            (self._sums[at + 1] - self._sums[at]) / (self._ends[at + 1] - self._ends[at])
            for at in range(self._first, len(self._ends) - 1)
        ]
        squares = [(one - other) ** 2 / 2 for one, other in pairwise(losses)]
        noise = math.sqrt(fmean(squares) / len(losses)) if squares else 0.0
        since = self._until(last + _BEYOND_NOISE * noise)
        return since is not None and since >= end / 2

    def _until(self, loss: float) -> float | None:
        place = next((at for at, (_, value) in enumerate(self._points) if value <= loss), None)
        if not place:
            return None if place is None else self._points[0][0]
        (earlier, higher), (later, lower) = self._points[place - 1 : place + 1]
        return earlier + (later - earlier) * (higher - loss) / (higher - lower)


def resolution(qualities: Sequence[float]) -> float:
    """Return the greatest step that divides all differences between the qualities.

    An accuracy over 360 samples moves by steps of 1/360. Of a continuous quality the step is
    negligible; it is 0 if all qualities are the same. By Euclid's algorithm.
    """
    least = _LEAST_STEP * max(map(abs, qualities), default=0.0)
    step = 0.0
    for lower, higher in pairwise(sorted(qualities)):
        rest = higher - lower
        while rest > least:
            step, rest = rest, step % rest
            rest = min(rest, step - rest)  # just below a multiple is one too
    return step


def bounds(
    losses: Sequence[float], step: float = 0.0, confidence: float = ONE_CONFIDENCE
) -> Interval:
    """Return one-sided bounds of the mean loss, by Student's t; infinite for one seed.

    `step` is the resolution of the quality. A value rounded to steps has an error spread evenly
    over one step, whose standard deviation is step/sqrt(12). A loss is the difference of two such
    values, so its deviation is at least step/sqrt(6), however equal the losses look. As this one
    is known and not estimated, it takes the quantile of the normal distribution.
    """
    if len(losses) < 2:  # noqa: PLR2004
        return -math.inf, math.inf
    quantile = student(confidence, len(losses) - 1)
    normal = NormalDist().inv_cdf(confidence)
    spread = max(quantile * stdev(losses), normal * step / math.sqrt(6))
    half = spread / math.sqrt(len(losses))
    middle = mean(losses)  # not fmean: equal losses have exactly themselves as their mean
    return middle - half, middle + half


def decide(losses: Sequence[float], allowed: float, step: float = 0.0) -> Decision:
    """Decide on losses of quality, one per paired seed, positive for worse; `allowed` is the most.

    "undecided" means that further seeds are needed. `step` is the resolution of the quality. Losses
    are accepted at the last of `SEED_COUNTS` that they have; they may be rejected at any time,
    which errs on the safe side.
    """
    count = max((seeds for seeds in SEED_COUNTS if seeds <= len(losses)), default=1)
    if bounds(losses[:count], step, EACH_CONFIDENCE)[1] <= allowed:
        return "accept"
    low, _ = bounds(losses, step)
    if low > allowed or (len(losses) == 1 and losses[0] > _FAR_OFF * allowed):
        return "reject"
    return "undecided"


def may_accept(losses: Sequence[float], allowed: float, step: float = 0.0) -> bool:
    """Return whether the last test accepts, if further losses have the mean and spread of these."""
    missing = max(0, SEED_COUNTS[-1] - len(losses))
    middle, away = mean(losses), pstdev(losses)
    coming = (middle - away, middle + away) * (missing // 2) + (middle,) * (missing % 2)
    return bounds((*losses, *coming), step, EACH_CONFIDENCE)[1] <= allowed
