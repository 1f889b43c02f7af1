"""Which of a script's loaders feed its training, and the settings that those alone get.

What a loader is for shows when an optimizer steps: the last batch before came from one of training.
Until the first step nobody can tell, so any loader that is begun with gradients enabled gets the
settings; what turns out to be something else, as a validation before training, is put back as it
was. After that only loaders that were seen to feed training get them, and those that are built in
the place of one, epoch after epoch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from autotune.config import TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Knob
from autotune.scripting.program import is_run_by_workers
from autotune.scripting.seen import Seen, samples_in
from autotune.scripting.sites import Sites
from autotune.scripting.snapshot import snapshot

STREAM = "the dataset is a stream, of which each worker gives all"
UNGUARDED = "workers would run the whole script again, which has no `if __name__ == ...`"
CHANGES = "the script changes its dataset between epochs, which workers that stay would not see"
LOADER_KNOBS = tuple(
    knob.name
    for knob in ALL_KNOBS
    if type(knob).loader_kwargs is not Knob.loader_kwargs and knob.name != "batch_size"
)

Fail = Callable[[str, BaseException], None]


class _Untried:
    """A loader that was changed, before its first batch."""

    def __init__(self, loader: DataLoader[Any], changed: dict[str, Any]) -> None:
        self.loader, self.changed = loader, changed
        self._generators = [torch.default_generator]
        if isinstance(loader.generator, torch.Generator):
            self._generators.append(loader.generator)
        self._states = [generator.get_state() for generator in self._generators]

    def rewind(self) -> None:
        """Have the order be drawn again that it would have been."""
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)


class TrainingLoaders:
    """Gives settings to the loaders of training, as their epochs begin."""

    def __init__(
        self, config: TrainingConfig, asked: frozenset[str], seen: Seen, fail: Fail
    ) -> None:
        self.sites = Sites()
        self.refused: dict[str, str] = {}
        """Knobs that the loader of training cannot be given, and why."""
        self.may_fall_back = True
        """Whether a loader that gives no batch with the settings goes on without them."""
        self._config, self._asked, self._seen, self._fail = config, asked, seen, fail
        self._feeding: weakref.ref[DataLoader[Any]] | None = None
        self._last: weakref.ref[DataLoader[Any]] | None = None
        self._last_size = 0
        self._of: weakref.WeakKeyDictionary[Any, weakref.ref[DataLoader[Any]]]
        self._of = weakref.WeakKeyDictionary()
        self._before: weakref.WeakKeyDictionary[DataLoader[Any], dict[str, Any]]
        self._before = weakref.WeakKeyDictionary()
        self._untried: weakref.WeakKeyDictionary[Any, _Untried] = weakref.WeakKeyDictionary()
        self._instead: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        """What gives the batches of an iterator that failed."""
        self._known: weakref.WeakSet[DataLoader[Any]] = weakref.WeakSet()
        self._staying: weakref.WeakKeyDictionary[DataLoader[Any], list[object]]
        self._staying = weakref.WeakKeyDictionary()
        """What workers that stay by our doing were started with."""
        self._changes = False
        self._gave_up = False

    def watch(self) -> None:
        """See every loader that is built, begun and read from now on."""
        self.sites.watch()
        begin, give = DataLoader.__iter__, _BaseDataLoaderIter.__next__

        def __iter__(loader: DataLoader[Any]) -> Any:  # noqa: N807
            changed = self._give(loader)
            untried = _Untried(loader, changed) if self.may_fall_back and changed else None
            try:
                iterator = begin(loader)
            except Exception as error:
                if untried is None:
                    raise
                self._fall_back(untried, error)
                iterator = begin(loader)
            else:
                if untried is not None:
                    self._untried[iterator] = untried
            self._of[iterator] = weakref.ref(loader)
            return iterator

        def __next__(iterator: Any) -> Any:  # noqa: N807
            batch = self._next(iterator, begin, give)
            if torch.is_grad_enabled():
                self._last = self._of.get(iterator)
                if self._feeding is None:
                    self._last_size = samples_in(batch)
            return batch

        DataLoader.__iter__ = __iter__  # type: ignore[method-assign]
        _BaseDataLoaderIter.__next__ = __next__  # type: ignore[method-assign, assignment]

    def _next(self, iterator: Any, begin: Callable[..., Any], give: Callable[..., Any]) -> Any:
        """The next batch: where the first one fails under the settings, as the script has it."""
        untried = self._untried.pop(iterator, None)
        if untried is None:
            return give(self._instead.get(iterator, iterator))
        try:
            return give(iterator)
        except StopIteration:
            raise
        except Exception as error:
            self._fall_back(untried, error)
        with suppress(Exception):  # one without workers has none to end
            iterator._shutdown_workers()
        self._instead[iterator] = begin(untried.loader)
        return give(self._instead[iterator])

    def _fall_back(self, untried: _Untried, error: Exception) -> None:
        """Have the script go on as if its loader had never had the settings."""
        self._gave_up = True
        self._take_back(untried.loader)
        vars(untried.loader)["_iterator"] = None
        untried.rewind()
        for name in untried.changed:
            self._fail(name, error)

    @property
    def is_news(self) -> bool:
        """Whether a step now would say more than the last one; asked after each."""
        return self._last is not self._feeding and self._last is not None

    def stepped(self) -> None:
        """An optimizer has stepped: the last batch was one of training."""
        loader = None if self._last is None else self._last()
        if loader is None:  # of a loader that nobody names, there was but this one epoch
            return
        is_first, self._feeding = self._feeding is None, self._last
        if loader in self._known:  # of several in turn
            return
        self._known.add(loader)
        self.sites.mark(loader)
        self._seen.loader = loader
        self._seen.batch_size = self._seen.batch_size or self._last_size or None
        _, self.refused = self._settings_for(loader)
        if is_first:
            for other in [other for other in self._before if other is not loader]:
                self._take_back(other)
        self.note()

    def note(self) -> None:
        """Remember what the loader of training has, for when it is gone."""
        for name in self._asked.intersection(LOADER_KNOBS):
            try:
                self._seen.note(KNOBS[name])
            except LookupError:
                return

    def _give(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Give a loader the settings if it may be one of training; what changed."""
        try:
            self._let_go_of_outdated(loader)
            # Workers that persist are there already.
            persists = getattr(loader, "_iterator", None) is not None
            if persists or self._gave_up or not self._may_train(loader):
                return {}
            self._seen.meet(loader)
            given, refused = self._settings_for(loader)
            if self._feeding is None:
                self.refused = refused
            changed = {n: v for n, v in given.items() if vars(loader)[n] != v}
            self._before.setdefault(loader, {n: vars(loader)[n] for n in given})
            # Past __setattr__, which refuses persistent_workers once a loader is made.
            vars(loader).update(changed)
            if changed.get("persistent_workers"):
                self._staying[loader] = snapshot(loader.dataset, loader.collate_fn)
            self.note()
            return changed
        except Exception as error:
            for name in self._asked.intersection(LOADER_KNOBS):
                self._fail(name, error)
            self._gave_up = True
            self._take_back(loader)
            return {}

    def _let_go_of_outdated(self, loader: DataLoader[Any]) -> None:
        """End workers that stayed by our doing and have another dataset than the script by now."""
        started_with = self._staying.get(loader)
        if started_with is None:
            return
        if started_with == snapshot(loader.dataset, loader.collate_fn):
            return
        self._changes = True
        del self._staying[loader]
        vars(loader).update(persistent_workers=False, _iterator=None)
        _, self.refused = self._settings_for(loader)

    def _may_train(self, loader: DataLoader[Any]) -> bool:
        if not torch.is_grad_enabled():  # an evaluation
            return False
        return self._feeding is None or loader in self._known or self.sites.is_marked(loader)

    def _take_back(self, loader: DataLoader[Any]) -> None:
        """Have a loader as the script built it, from its next epoch on."""
        before = self._before.pop(loader, {})
        self._staying.pop(loader, None)
        vars(loader).update(before)
        if before and not loader.persistent_workers:
            vars(loader)["_iterator"] = None  # workers that would have stayed

    def _settings_for(self, loader: DataLoader[Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """What may be set on this loader, and why not the rest."""
        names = [name for name in LOADER_KNOBS if name in self._asked]
        own, refused = self._workers_before(loader), {}
        workers = self._config["num_workers"] if "num_workers" in names else own
        if workers != own and (obstacle := _obstacle(loader, own)):
            refused["num_workers"] = obstacle
            workers = own
        if workers != self._config["num_workers"]:
            why = refused.get("num_workers", f"the loader has num_workers={workers}")
            for name in names:
                differs = self._config[name] not in (None, vars(loader)[name])
                if KNOBS[name].needs == "num_workers" and differs:
                    refused[name] = why
            names = [name for name in names if KNOBS[name].needs != "num_workers"]
        if self._changes and self._config["persistent_workers"]:
            refused.setdefault("persistent_workers", CHANGES)
        hooks = (KNOBS[n].loader_kwargs(self._config[n]) for n in names if n not in refused)
        return {name: value for kwargs in hooks for name, value in kwargs.items()}, refused

    def _workers_before(self, loader: DataLoader[Any]) -> int:
        """The number of workers that the script gave it."""
        return int(self._before.get(loader, {}).get("num_workers", loader.num_workers))


def _obstacle(loader: DataLoader[Any], own: int) -> str | None:
    """Why it keeps the workers that the script gave it; None where it may have others."""
    if isinstance(loader.dataset, IterableDataset):
        return STREAM
    context = loader.multiprocessing_context
    method = None if context is None else context.get_start_method()
    return UNGUARDED if own == 0 and is_run_by_workers(method) else None
