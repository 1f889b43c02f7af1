"""Find the loaders that a script trains with, apply settings only to them, and tell their batches.

The last batch before an optimizer step comes from a training loader. Before the first step that is
unknown, so every loader that is iterated with gradients enabled gets the settings. Loaders that
turn out to be others, such as a validation before training, get their own arguments back. After
the first step a loader gets them if the same calls have built a training loader, for example
in an epoch before.

Between two epochs, or while another loader is read, the script evaluates, saves or logs. Settings
cannot speed that up, so the training clock stops meanwhile. The training loader may also be read to
evaluate. An iteration is an evaluation if it begins without gradients, or if no backward pass and
no step follow before the next iteration.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS, torch_private
from autotune.knobs.base import Knob
from autotune.process.common.imports import replace
from autotune.scripting.observed_training import ModelCalls, ObservedTraining
from autotune.scripting.run import is_run_by_workers
from autotune.scripting.wrappers import Fail
from autotune.training.batches import (
    STREAM,
    Batches,
    BatchSizes,
    Synchronize,
    bytes_in,
    length_of,
)
from autotune.values.outcome import SETTLED_STEP

_UNGUARDED = "workers would run the whole script again: it has no `if __name__ == ...`"
_CHANGES = (
    "the script changes its dataset between epochs, and persistent workers would not see that"
)
LOADER_KNOBS = tuple(
    knob.name
    for knob in ALL_KNOBS
    if type(knob).loader_kwargs is not Knob.loader_kwargs and knob.name != "batch_size"
)

_NOT_THE_SCRIPTS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# Objects of a dataset that are compared, nearest first, and entries of a long list among them.
_MOST_PARTS, _MOST_ENTRIES = 5_000, 100
# Steps without a batch after which the loader that was read before is known not to feed them.
_UNFED = 10
# Counts that an iteration changes, and that are as before where it turns out to be an evaluation.
_COUNTS = (
    *("_since_step", "_last", "wait_seconds", "_batches_in_epoch", "epoch_batches"),
    *("_taken_ahead", "_has_ended", "_epoch_backwards"),
)

Calls = tuple[tuple[str, int], ...]
"""File and line of every call that led to a loader, innermost first."""


class TrainingLoaders:
    """The settings of the training loaders, which are applied when an epoch begins."""

    def __init__(
        self, config: TrainingConfig, asked: frozenset[str], observed: ObservedTraining, fail: Fail
    ) -> None:
        self.sizes = BatchSizes()
        self.readers: list[BatchStream] = []
        """Observers of every iteration of any loader, and of its batches."""
        self.all_names: list[str] = []
        """Names of all loaders in the order of building, such as train.py:41#0, in which 0 is the
        first one built in that line."""
        self.names: WeakKeyDictionary[DataLoader[Any], str] = WeakKeyDictionary()
        self.refused: dict[str, str] = {}
        """Knobs that cannot be applied to the training loader, each with the reason."""
        self.is_news = False
        """True if the last batch came from another loader than the one of the last step."""
        self.gave = False
        """True if a loader gave a batch since this was last set to False."""
        self.may_fall_back = True
        """True if a loader whose workers cannot start continues without the settings."""
        self._config, self._asked, self._observed, self._fail = config, asked, observed, fail
        self._feeding: ref[DataLoader[Any]] | None = None
        self._last: ref[DataLoader[Any]] | None = None
        self._last_size = 0
        self._of: WeakKeyDictionary[Any, ref[DataLoader[Any]]] = WeakKeyDictionary()
        self._before: WeakKeyDictionary[DataLoader[Any], dict[str, Any]] = WeakKeyDictionary()
        self._iterator: Callable[[], Any] = lambda: None
        """Reference to the iterator of the last batch."""
        self._feeds: ref[DataLoader[Any]] | None = None
        """The loader of that iterator, if it is one of torch's."""
        self._known: WeakSet[DataLoader[Any]] = WeakSet()
        self._lines: Counter[str] = Counter()
        self._calls: WeakKeyDictionary[DataLoader[Any], Calls] = WeakKeyDictionary()
        self._training: set[Calls] = set()
        """Calls that have built a training loader."""
        self._staying: WeakKeyDictionary[DataLoader[Any], object] = WeakKeyDictionary()
        """Loader to its dataset as its workers have it, if they persist by our setting."""
        self._changes = False
        self._gave_up = False

    def watch(self) -> None:
        """Observe every loader that is built or iterated from now on, and apply the settings.

        Side effect: patches `DataLoader` for the process.
        """
        torch_private.watch_indices(self.sizes.note)

        def build(build: Any, loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
            build(loader, *args, **kwargs)
            with suppress(Exception):  # an unknown type of frame or loader must not harm the script
                self._built(loader, sys._getframe(2))

        def iterate(begin: Any, loader: DataLoader[Any]) -> Any:
            start = time.perf_counter()
            changed = self._give(loader)
            try:
                iterator = begin(loader)
            except Exception as error:
                if not (self.may_fall_back and changed):
                    raise
                self._give_up(loader, changed, error)
                iterator = begin(loader)
            own = torch_private.torch_s_own(iterator)
            self._of[own] = ref(loader)
            for reader in self.readers:
                reader.begun(loader, own, start)
            return iterator

        def take(give: Any, iterator: Any) -> Any:
            start = time.perf_counter()
            try:
                batch = give(iterator)
            except StopIteration:
                for reader in self.readers:
                    reader.ended(iterator, start)
                raise
            self.sizes.given(iterator)
            if self._iterator() is not iterator:  # else its loader is known already
                self._iterator, self._feeds = ref(iterator), self._of.get(iterator)
            # The iterator of a loader of another library is not known, nor what reads it.
            if self._feeds is not None and torch.is_grad_enabled():
                self._last, self.gave = self._feeds, True
                self.is_news = self._feeds is not self._feeding
                if self._feeding is None:
                    self._last_size = self.sizes.of(batch)
            for reader in self.readers:
                reader.given(iterator, start, batch)
            return batch

        replace(DataLoader, "__init__", build)
        replace(DataLoader, "__iter__", iterate)
        replace(torch_private.loader_iterators(), "__next__", take)

    def _built(self, loader: DataLoader[Any], frame: FrameType | None) -> None:
        found = []
        while frame is not None:
            found.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        self._calls[loader] = tuple(found)
        own = next((call for call in found if not call[0].startswith(_NOT_THE_SCRIPTS)), None)
        if own is not None:
            line = f"{Path(own[0]).name}:{own[1]}"
            self.names[loader] = f"{line}#{self._lines[line]}"
            self._lines[line] += 1
            self.all_names.append(self.names[loader])

    def stepped(self) -> None:
        """Record an optimizer step: the loader of the last batch is a training loader."""
        loader = None if self._last is None else self._last()
        if loader is None:  # a loader without a reference, which has ended its only epoch
            return
        is_first, self._feeding = self._feeding is None, self._last
        self.is_news = False
        if loader in self._known:  # one of several training loaders
            return
        self._known.add(loader)
        if loader in self._calls:
            self._training.add(self._calls[loader])
        self._observed.loader = loader
        self._observed.batch_size = self._observed.batch_size or self._last_size or None
        _, self.refused = self._settings_for(loader)
        if is_first:
            for other in [other for other in self._before if not self._is_training(other)]:
                self._take_back(other)
        self.note()

    def note(self) -> None:
        """Record the training loader's settings, since it may be freed before they are read."""
        for name in self._asked.intersection(LOADER_KNOBS):
            try:
                self._observed.note(KNOBS[name])
            except LookupError:
                return

    def _give(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Apply the settings to a loader that may be a training loader; return what changed."""
        try:
            if loader in self._staying and self._staying[loader] != _state_of_data(loader):
                # Workers that persist by our setting would not see that the dataset has changed.
                self._changes = True
                del self._staying[loader]
                vars(loader).update(persistent_workers=False, _iterator=None)
                _, self.refused = self._settings_for(loader)
            persists = torch_private.has_iterator(loader)  # its workers run already
            # After the first step, other loaders are those of evaluations.
            may_train = self._feeding is None or self._is_training(loader)
            if persists or self._gave_up or not (may_train and torch.is_grad_enabled()):
                return {}
            self._observed.meet(loader)
            given, refused = self._settings_for(loader)
            if self._feeding is None:
                self.refused = refused
            changed = {n: v for n, v in given.items() if vars(loader)[n] != v}
            self._before.setdefault(loader, {n: vars(loader)[n] for n in given})
            # Bypasses __setattr__, which refuses persistent_workers once a loader is built.
            vars(loader).update(changed)
            if changed.get("persistent_workers"):
                self._staying[loader] = _state_of_data(loader)
            self.note()
            return changed
        except Exception as error:
            self._give_up(loader, self._asked.intersection(LOADER_KNOBS), error)
            return {}

    def _give_up(self, loader: DataLoader[Any], names: Iterable[str], error: Exception) -> None:
        """Take the settings back, so that the script continues as if they had not been applied."""
        self._gave_up = True
        self._take_back(loader)
        for name in names:
            self._fail(name, error)

    def _is_training(self, loader: DataLoader[Any]) -> bool:
        return loader in self._known or self._calls.get(loader) in self._training

    def _take_back(self, loader: DataLoader[Any]) -> None:
        """Restore the loader's own arguments from its next epoch on."""
        before = self._before.pop(loader, {})
        self._staying.pop(loader, None)
        vars(loader).update(before)
        if before and not loader.persistent_workers:
            torch_private.drop_iterator(loader)

    def _settings_for(self, loader: DataLoader[Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the arguments to set on this loader, and the refused knobs with their reasons."""
        names = [name for name in LOADER_KNOBS if name in self._asked]
        before, refused = self._before.get(loader, vars(loader)), {}
        own = int(before.get("num_workers", loader.num_workers))
        workers = self._config["num_workers"] if "num_workers" in names else own
        if workers != own and (obstacle := _obstacle(loader, own)):
            refused["num_workers"] = obstacle
            workers = own
        if workers != self._config["num_workers"]:
            why = refused.get("num_workers", f"the loader has num_workers={workers}")
            for name in names:
                differs = self._config[name] not in (None, vars(loader).get(name))
                if KNOBS[name].needs == "num_workers" and differs:
                    refused[name] = why
            names = [name for name in names if KNOBS[name].needs != "num_workers"]
        if self._changes and self._config["persistent_workers"]:
            refused.setdefault("persistent_workers", _CHANGES)
        hooks = (KNOBS[n].loader_kwargs(self._config[n]) for n in names if n not in refused)
        given = {name: value for kwargs in hooks for name, value in kwargs.items()}
        return given, refused


def _obstacle(loader: DataLoader[Any], own: int) -> str | None:
    """Return why the loader must keep its own number of workers; None if it may be changed."""
    if isinstance(loader.dataset, IterableDataset):
        return STREAM
    context = loader.multiprocessing_context
    method = None if context is None else context.get_start_method()
    return _UNGUARDED if own == 0 and is_run_by_workers(method) else None


def _state_of_data(loader: DataLoader[Any]) -> list[object]:
    """Return what differs later if the script has changed its dataset, however deep.

    Workers that outlive an epoch would not see that. No code of the script's is called. Not seen
    are attributes in `__slots__`, changes within an array, and few of those in a long list.
    """
    found: list[object] = []
    known: set[int] = set()
    ahead = deque[object]((loader.dataset, loader.collate_fn))
    while ahead and len(found) < _MOST_PARTS:
        thing = ahead.popleft()
        is_plain = type(thing) in _PLAIN
        found.append((type(thing), thing) if is_plain else id(thing))
        if not is_plain and id(thing) not in known:
            known.add(id(thing))
            ahead.extend(_within(thing))
    return found


def _within(thing: Any) -> Iterable[object]:
    match thing:
        case Tensor() | ModuleType() | FunctionType() | type():
            return ()
        case dict():
            return (part for item in islice(thing.items(), _MOST_ENTRIES) for part in item)
        case list() | tuple():
            return (len(thing), *thing[:: max(1, len(thing) // _MOST_ENTRIES)])
    # The object that a bound method is bound to.
    return (getattr(thing, "__self__", None), *getattr(thing, "__dict__", {}).values())


class _Use:
    """Batches and samples of the steps, as one source counts them."""

    def __init__(self) -> None:
        self.batches = self.samples = self._steps = 0
        self.of_steps: Counter[int] = Counter()
        """Number of steps by the batches that they accumulate."""
        self._first = (0, 0, 0)

    def add(self, batches: int, samples: int) -> None:
        """Add a step."""
        self._steps += 1
        self.batches += batches
        self.samples += samples
        self.of_steps[batches] += 1
        if self._steps == SETTLED_STEP:
            self._first = (self.batches, self.samples, self._steps)

    def settled(self) -> tuple[int, int, int]:
        """Return batches, samples and steps, less those of the first steps if there are more."""
        batches, samples, steps = self._first if self._steps > SETTLED_STEP else (0, 0, 0)
        return self.batches - batches, self.samples - samples, self._steps - steps


class BatchStream(Batches):
    """The batches that a script takes from its loaders, or gives to its model where none feeds it.

    Call `stepped` after every step that counts.
    """

    def __init__(self, synchronize: Synchronize, calls: ModelCalls, reads: TrainingLoaders) -> None:
        """Listen to `reads` from now on."""
        self.calls = calls
        self._sizes = reads.sizes
        reads.readers.append(self)
        super().__init__((), time.perf_counter, synchronize)
        self.loader: DataLoader[Any] | None = None
        """The training loader; None until the first step with one of its batches."""
        self.steps = 0
        """Optimizer steps so far."""
        self.is_fed = False
        """True if a torch DataLoader feeds the steps."""
        self._given_out, self._called = _Use(), _Use()
        self._use = self._called
        self.looks: list[Callable[[Any], object]] = []
        """Functions that are called with each batch of the training loader."""
        self._without = 0
        self._sample_bytes = 0
        self._standing = 0.0
        self._last = 0.0
        self._elsewhere = False
        self._closing = 0.0
        self._opening: float | None = None
        self._last_size = 0
        self._since_step: tuple[DataLoader[Any] | None, int, int] = (None, 0, 0)
        self._loaders: WeakKeyDictionary[Any, DataLoader[Any]] = WeakKeyDictionary()
        self._read: Iterator[Any] = iter(())
        self._reads: DataLoader[Any] | None = None
        """The loader of `_read`."""
        # The last iteration, with steps and backward passes, boundaries, and counts as it began.
        self._begun_last: tuple[Any, tuple[int, int], int, dict[str, Any]] | None = None
        self._taken_ahead = (0, 0)
        """A batch that the loop has taken before it trains on it, as accelerate's do, and its
        samples. It counts with the step that trains on it."""
        self._has_ended = False
        """True once the loader has given all batches of the epoch."""
        self._backwards = self._epoch_backwards = 0
        """Backward passes until the last step, and before the epoch."""
        self._thread = threading.get_ident()
        self.is_read_apart = False
        """True if a thread of the script's own reads the loader, so that no wait is known."""

    def clock(self) -> float:
        """Return the time of a clock, in seconds, that stops while the script does not train."""
        return time.perf_counter() - self._standing - self.calls.aside_seconds

    def stepped(self) -> None:
        """Record an optimizer step: the last batch's loader is the training loader."""
        loader, batches, samples = self._since_step
        if loader is not None and loader is not self.loader:
            self.loader = loader
            self._iterator, self._elsewhere, self._opening = self._read, False, None
            self._batches_in_epoch, self._epoch_backwards = batches, self._backwards
            self._taken_ahead, self._has_ended = (0, 0), False
        self._backwards = self.calls.backwards
        batches, samples = batches + self._taken_ahead[0], samples + self._taken_ahead[1]
        passed = self._backwards - self._epoch_backwards
        is_ahead = 0 < passed == self._batches_in_epoch - 1 and not self._has_ended and batches > 0
        self._taken_ahead = (1, self._last_size) if is_ahead else (0, 0)
        batches, samples = batches - self._taken_ahead[0], samples - self._taken_ahead[1]
        self.steps, self._thread = self.steps + 1, threading.get_ident()
        self._given_out.add(batches, samples)
        self._called.add(*self.calls.stepped())
        self._without = 0 if batches else self._without + 1
        self.is_fed = self.loader is not None and self._without < _UNFED
        self._use = self._given_out if self.is_fed else self._called
        self._since_step = (loader, 0, 0)
        self._last = time.perf_counter()

    def pass_over(self) -> None:
        """Leave out the time and batches since the last recorded step, except the last batch.

        Called before `stepped` when another optimizer has become the one that counts.
        """
        loader, batches, _ = self._since_step
        self._since_step = (loader, min(1, batches), self._last_size)
        self._stand_still_until(time.perf_counter())

    @property
    def counts_samples(self) -> bool:
        """True if the samples of a step are known; else each step counts as one."""
        return self.is_fed or self._called.samples > 0

    @property
    def batches(self) -> int:
        """Batches used by these steps; backward passes where no loader feeds them."""
        return self._use.batches

    @property
    def samples(self) -> int:
        """Samples used by these steps; steps where samples are unknown."""
        return self._use.samples or (0 if self.counts_samples else self.steps)

    @property
    def sample_bytes(self) -> int:
        """Bytes of the tensors of one sample, from the very first batch."""
        return self._sample_bytes if self.is_fed else self.calls.sample_bytes

    @property
    def accumulation_steps(self) -> int:
        """Batches of most optimizer steps; a scaler skips some steps, and an epoch may end one."""
        return max(1, self._use.of_steps.most_common(1)[0][0]) if self.steps else 1

    @property
    def samples_per_batch(self) -> float:
        """Mean samples per batch: of an epoch if known, else of the observed batches."""
        observed = self._use.samples / max(1, self.batches)
        if not self.is_fed:
            return observed or 1.0
        if self.loader is None or self.loader.batch_size is None:
            return observed
        if self.loader.drop_last or isinstance(self.loader.dataset, IterableDataset):
            return self.loader.batch_size
        samples, batches = length_of(self.loader.sampler), length_of(self.loader)
        return samples / batches if samples and batches else self.loader.batch_size

    @property
    def samples_per_step(self) -> float:
        """Mean samples per optimizer step; several batches if gradients are accumulated.

        The first steps are left out, because a gradient scaler skips some while it looks for its
        scale. An optimizer that is not fused hides them: the next step gets their batches.
        """
        batches, samples, steps = self._use.settled()
        if self.is_fed:
            return self.samples_per_batch * batches / max(1, steps)
        return samples / max(1, steps) if self.counts_samples else 1.0

    @property
    def epoch_samples(self) -> int | None:
        """Samples of one epoch, which may be broken off; None if its length is not known."""
        return super().epoch_samples if self.is_fed else None

    def begun(self, loader: DataLoader[Any], iterator: Any, start: float) -> None:
        """Record that an iteration of a loader began."""
        self._loaders[iterator] = loader
        if not torch.is_grad_enabled():  # an evaluation
            self._elsewhere = True
            if iterator is self._iterator:  # that of persistent workers
                self._iterator = iter(())
            return
        self._undo_evaluation()
        if loader is self.loader:
            self._stand_still_until(start)
        counts = {name: vars(self)[name] for name in _COUNTS}
        progress = self.steps, self.calls.backwards
        self._begun_last = (iterator, progress, len(self.boundary_seconds), counts)
        if loader is not self.loader:
            self._elsewhere = True
            return
        self._opening = self._closing + time.perf_counter() - start
        self._closing = 0.0
        self._iterator = iterator
        if self._batches_in_epoch and not self._has_ended:
            self.epoch_batches = self._batches_in_epoch
        if self.calls.backwards - self._epoch_backwards < self._batches_in_epoch:
            self._taken_ahead = (0, 0)  # never trained on
        self._batches_in_epoch, self._epoch_backwards = 0, self.calls.backwards
        self._has_ended = False

    def given(self, iterator: Any, start: float, batch: Any) -> None:
        """Record a batch."""
        loader = self._reads if iterator is self._read else self._loaders.get(iterator)
        # An iterator that began with gradients may be read without them.
        may_train = iterator is self._iterator or torch.is_grad_enabled()
        if loader is None or not may_train:
            return
        if self._begun_last is not None and self._begun_last[0] is not iterator:
            self._undo_evaluation()
        seconds, size = time.perf_counter() - start, self._sizes.of(batch, loader) or 1
        if not self._sample_bytes:
            self._sample_bytes = bytes_in(batch) // size
        last, batches, samples = self._since_step
        if last is not loader:
            batches = samples = 0
        self._since_step = (loader, batches + 1, samples + size)
        self._last_size = size
        self._read, self._reads = iterator, loader
        if loader is not self.loader:
            return
        self._iterator = iterator
        for look in self.looks:
            look(batch)
        if self._elsewhere:
            self._stand_still_until(start)
        self._batches_in_epoch += 1
        opening, self._opening = self._opening, None
        if threading.get_ident() != self._thread:
            self.is_read_apart = True
            return
        if opening is None:
            self.wait_seconds += seconds
        else:
            self.boundary_seconds.append(opening + seconds)

    def ended(self, iterator: Any, start: float) -> None:
        """Record that an iteration gave its last batch."""
        may_train = iterator is self._iterator or torch.is_grad_enabled()
        if may_train and self._loaders.get(iterator) is self.loader is not None:
            self._last = time.perf_counter()
            self._closing, self._has_ended = self._last - start, True
            self.epoch_batches = self._batches_in_epoch

    def _undo_evaluation(self) -> None:
        """Leave out the last iteration, with its time, if nothing was trained since it began."""
        begun, self._begun_last = self._begun_last, None
        if begun is None or begun[1] != (self.steps, self.calls.backwards):
            return
        del self.boundary_seconds[begun[2] :]
        vars(self).update(begun[3])
        self._elsewhere = True

    def _stand_still_until(self, moment: float) -> None:
        self._standing += max(0.0, moment - self._last)
        self._last = moment
        self._elsewhere = False
