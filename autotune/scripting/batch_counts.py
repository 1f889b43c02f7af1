"""Count the batches and samples of a script's steps, as the batch stream tells of them."""

from __future__ import annotations

from collections import Counter


class Use:
    """Batches and samples of the steps, as one source tells them."""

    def __init__(self) -> None:
        """Begin with no step."""
        self.batches = self.samples = self._steps = 0
        self.of_steps: Counter[int] = Counter()
        """Number of steps by the batches that they accumulate."""
        self._mark = (0, 0, 0)

    def add(self, batches: int, samples: int, of_others: int) -> None:
        """Add a step; those of its batches that came before another optimizer's are not its own.

        If no batch came after, both optimizers step on the same ones.
        """
        self._steps += 1
        self.batches += batches
        self.samples += samples
        self.of_steps[batches - of_others if of_others < batches else batches] += 1

    def mark(self) -> None:
        """Let `since_mark` begin here."""
        self._mark = (self.batches, self.samples, self._steps)

    def since_mark(self) -> tuple[int, int, int]:
        """Return batches, samples and steps since the mark; all if there was no step since."""
        batches, samples, steps = self._mark if self._steps > self._mark[2] else (0, 0, 0)
        return self.batches - batches, self.samples - samples, self._steps - steps


class Lead:
    """A batch that a loop takes before it has trained on the last one, as accelerate's do.

    It counts with the step that trains on it. Otherwise a batch more or less than were trained on
    would lie between two steps, one in or just before the first of an epoch, one in its last.
    """

    def __init__(self, backwards: int) -> None:
        """Begin an epoch, before which there were so many backward passes."""
        self.has_ended = False
        """True once the loader has given all batches of the epoch."""
        self._backwards = backwards
        self._ahead = (0, 0)

    def trained(self, since: tuple[int, int], given: int, size: int, backwards: int) -> list[int]:
        """Return the batches that a step has trained on, and their samples.

        Args:
            since: batches given since the last step, and their samples.
            given: batches given in this epoch.
            size: samples of the last one.
            backwards: backward passes so far.
        """
        before, passed = self._ahead, backwards - self._backwards
        is_ahead = 0 < passed == given - 1 and not self.has_ended
        self._ahead = (1, size) if is_ahead else (0, 0)
        return [
            now + kept - ahead for now, kept, ahead in zip(since, before, self._ahead, strict=True)
        ]
