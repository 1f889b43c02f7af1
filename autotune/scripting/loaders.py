"""Find the loaders that a script trains with, and apply settings only to them.

The last batch before an optimizer step comes from a training loader. Before the first step that is
unknown, so every loader that is iterated with gradients enabled gets the settings. Loaders that
turn out to be others, such as a validation before training, get their own arguments back. After
the first step a loader gets them if the same calls have built a training loader, for example
in an epoch before.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS, torch_private
from autotune.knobs.base import Knob
from autotune.knobs.process import AFFINITY
from autotune.process.common.imports import replace
from autotune.scripting.observed_training import ObservedTraining
from autotune.scripting.run import is_run_by_workers
from autotune.scripting.wrappers import Fail
from autotune.training.batches import BatchSizes
from autotune.training.sharding import STREAM

if TYPE_CHECKING:
    from autotune.scripting.batch_stream import BatchStream

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
        self._iterator: Callable[[], Any] = _nothing
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
        for name in self._asked.intersection((*LOADER_KNOBS, AFFINITY.name)):
            try:
                self._observed.note(KNOBS[name])
            except LookupError:
                return

    def _give(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Apply the settings to a loader that may be a training loader; return what changed."""
        try:
            self._let_go_of_outdated(loader)
            persists = torch_private.has_iterator(loader)  # its workers run already
            if persists or self._gave_up or not self._may_train(loader):
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

    def _let_go_of_outdated(self, loader: DataLoader[Any]) -> None:
        """End workers that persist by our setting if the script has changed its dataset since."""
        if loader in self._staying and self._staying[loader] != _state_of_data(loader):
            self._changes = True
            del self._staying[loader]
            vars(loader).update(persistent_workers=False, _iterator=None)
            _, self.refused = self._settings_for(loader)

    def _may_train(self, loader: DataLoader[Any]) -> bool:
        """Return False for an evaluation's loader, as far as that is known."""
        return torch.is_grad_enabled() and (self._feeding is None or self._is_training(loader))

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
        if AFFINITY.name in self._asked:
            init = before["worker_init_fn"]
            given["worker_init_fn"] = AFFINITY.worker_init(self._config[AFFINITY.name], init)
        return given, refused


def _nothing() -> None:
    """Stand for a reference whose object is gone."""


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
