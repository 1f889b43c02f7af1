"""Arguments that a script passes to the classes and functions of libraries, changed by settings.

`transformers.training_args.TrainingArguments.use_liger_kernel` names one: module, class or
function, argument. A dataclass has the value before its `__post_init__` reads it, and so have its
subclasses, whose constructors do not call that of their base.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from autotune.calling.flag import parts_of_call
from autotune.knobs.base import Value
from autotune.process.common import imports
from autotune.process.common.imports import AfterImport


class Calls:
    """The arguments that settings change, and the values that were passed."""

    def __init__(self, settings: Mapping[str, Value], may_fall_back: bool = False) -> None:
        """Prepare to pass each value of `settings` by its argument's name; null changes nothing.

        With `may_fall_back`, an object that cannot be made with a setting is made without it. A
        function's call is never repeated: it may be the whole training.
        """
        self._settings, self._may_fall_back = settings, may_fall_back
        self.passed: dict[str, Any] = {}
        """Values of the first call, by the argument's name."""
        self.failed: dict[str, Exception] = {}
        """Settings with which a call failed."""

    def watch(self) -> None:
        """Change the calls from now on."""
        for name, value in self._settings.items():
            module, path, argument = parts_of_call(name)
            AfterImport(module, partial(self._change, name, (module, path, argument), value))

    def _change(self, name: str, place: tuple[str, tuple[str, ...], str], value: Value) -> None:
        module, path, argument = place
        owner: Any = sys.modules[module]
        with suppress(AttributeError):  # another version of the library: nothing is passed then
            for part in path[:-1]:
                owner = getattr(owner, part)
            called = getattr(owner, path[-1])
            target, way = path[-1], self._by_argument
            if isinstance(called, type):
                owner, target = called, "__init__"
                if dataclasses.is_dataclass(called) and hasattr(called, "__post_init__"):
                    target, way = "__post_init__", self._by_field
            imports.replace(owner, target, partial(way, (name, argument, value)))

    def _by_field(
        self, setting: tuple[str, str, Value], original: Any, made: Any, *args: Any, **kwargs: Any
    ) -> None:
        name, argument, value = setting
        is_field = hasattr(made, argument)
        own = getattr(made, argument) if is_field else kwargs.get(argument)

        def call(value: object) -> None:
            if is_field:
                object.__setattr__(made, argument, value)  # of a frozen one, too
            original(made, *args, **(kwargs if is_field else {**kwargs, argument: value}))

        def unchanged() -> None:
            if is_field and value is not None:
                object.__setattr__(made, argument, own)
            original(made, *args, **kwargs)

        self._pass((name, value, own), call, unchanged)

    def _by_argument(
        self, setting: tuple[str, str, Value], original: Any, *args: Any, **kwargs: Any
    ) -> Any:
        name, argument, value = setting
        signature = inspect.signature(original)
        unchanged = partial(original, *args, **kwargs)
        try:
            bound = signature.bind_partial(*args, **kwargs)
        except TypeError:  # which the script is to see
            return unchanged()
        taken = signature.parameters.get(argument)
        default = None if taken is None else taken.default
        own = kwargs.get(argument, bound.arguments.get(argument, default))

        def call(value: object) -> Any:
            if taken is None:
                return original(*args, **{**kwargs, argument: value})
            bound.arguments[argument] = value
            return original(*bound.args, **bound.kwargs)

        return self._pass((name, value, own), call, unchanged)

    def _pass(
        self,
        setting: tuple[str, Value, object],
        call: Callable[[object], Any],
        unchanged: Callable[[], Any],
    ) -> Any:
        name, value, own = setting
        self.passed.setdefault(name, own if value is None else value)
        if value is None:
            return unchanged()
        try:
            return call(value)
        except Exception as error:
            makes_object = parts_of_call(name)[1][-1][0].isupper()
            if not (self._may_fall_back and makes_object):
                raise
            self.failed.setdefault(name, error)
            return unchanged()
