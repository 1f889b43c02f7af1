"""Run a script or a module as `python` would, and by `main` under settings.

`runpy` is not used, because it removes `__main__` when the script has ended. Exit handlers and
threads of the script may still pickle objects from there.

With settings: `python -P -c START PLAN [-m] SCRIPT [ARGUMENTS...]`.

START imports `main` and calls it: if python got `-m` instead, Ctrl-C would end in exit code 1. The
script's errors, output, input and exit code are its own. PLAN is JSON, see
`autotune.configuration.script.Plan`. It is an argument, because children of the script would
inherit an environment variable.
"""

from __future__ import annotations

import atexit
import builtins
import dataclasses
import importlib.util
import inspect
import multiprocessing
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from tempfile import mkdtemp
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from autotune.calling.arguments import with_copies
from autotune.calling.flag import CALL, parts_of_call
from autotune.configuration.script import Plan, Script
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import knob_named
from autotune.knobs.base import Value, spelled
from autotune.process.common.child_ties import this_place
from autotune.process.common.imports import AfterImport, replace
from autotune.process.common.trial_folder import TrialFolder
from autotune.values.text import by_reason, clean

if TYPE_CHECKING:
    from autotune.scripting.interpose import Interposition


_DEFAULTS = "only PyTorch's defaults"


class ScriptRun:
    """Hooks of a run: apply settings when the script imports torch, report when it ends."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._interposition: Interposition | None = None
        self._calls = Calls(plan.calls, may_fall_back=True)
        self._process = os.getpid()
        self._copies = ""

    def start(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """Set up the hooks; return the script's arguments with changed copies of config files.

        The copies are removed when the script has ended.
        """
        if self._plan.edits:
            self._copies = mkdtemp(prefix="autotune-")
        atexit.register(self._tell)
        self._calls.watch()
        AfterImport("torch", self._interpose)
        return with_copies(arguments, self._plan.edits, Path(self._copies))

    def _interpose(self) -> None:
        """Apply the settings; an error is printed, and the script continues without them."""
        try:
            from autotune.scripting.interpose import Interposition

            config = TrainingConfig.of(self._plan.settings)
            asked, by_flag = frozenset(self._plan.asked), frozenset(self._plan.by_flag)
            interposition = Interposition(config, asked, by_flag, self._plan.own)
            interposition.observed.passed = self._calls.passed
            interposition.install()
            self._interposition = interposition
        except Exception:
            traceback.print_exc()

    def _tell(self) -> None:
        if os.getpid() != self._process:  # a fork that the script made
            return
        if self._copies:
            shutil.rmtree(self._copies, ignore_errors=True)
        place, stderr = this_place(), sys.__stderr__  # the script may have replaced sys.stderr
        if stderr is None or (place is not None and place.rank):  # all ranks would say the same
            return
        with suppress(OSError, ValueError):
            ways = {way: knob for knob, way in self._plan.by_flag.items()}
            for name, error in self._calls.failed.items():
                if self._interposition is not None:
                    self._interposition.fail(ways.get(f"{CALL}{name}", f"calls.{name}"), error)
            for line in lines(self._plan, self._interposition):
                print(clean(f"autotune: {line}"), file=stderr)


def lines(plan: Plan, interposition: Interposition | None) -> Iterator[str]:
    """Yield what was applied, what the script overrode, and what could not be applied, and why.

    `interposition` is None if the script never imported torch.
    """
    if interposition is None:  # variables and its own flags reach it all the same
        names = [plan.setting(n) for n in plan.told if knob_named(n).environ(plan.settings[n])]
        names += [f"{plan.setting(name)} (by {flag})" for name, flag in plan.by_flag.items()]
        applied = f"applied: {', '.join(names)}, and nothing else"
        yield f"{applied if names else 'nothing was applied'}: the script did not import torch"
        return
    overridden, failed = interposition.overridden(), interposition.failed
    if interposition.steps == 0 and interposition.observed.batch_size is None:
        failed = dict.fromkeys(failed, "the script ended before its first step of training")
    fine = [n for n in (*plan.told, *plan.by_flag) if n not in overridden and n not in failed]
    by = {name: f" (by {flag})" for name, flag in plan.by_flag.items()}
    names = [f"{plan.setting(name)}{by.get(name, '')}" for name in fine]
    yield f"applied: {', '.join(names) or _DEFAULTS}"
    by_flag = {name: f"{plan.setting(name)} by {flag}" for name, flag in plan.by_flag.items()}
    for name, (wanted, found) in overridden.items():
        if name in by_flag:
            yield f"not applied: {by_flag[name]} (the script runs with {spelled(found)})"
        else:
            yield f"overridden by the script: {name}={spelled(found)} instead of {spelled(wanted)}"
    asked = {name: plan.setting(name) for name in plan.told} | by_flag
    without = {setting: failed[name] for name, setting in asked.items() if name in failed}
    for reason, settings in by_reason(without).items():
        yield f"not applied: {', '.join(settings)} ({reason})"
    own, wanted = interposition.observed.batch_size, plan.settings["batch_size"]
    is_told = plan.setting("batch_size") in plan.withheld
    if "batch_size" not in plan.by_flag and not is_told and own not in (None, wanted):
        yield f"batch_size={own} is the script's own; the result was measured with {wanted}"


class Calls:
    """Arguments that a script passes to the classes and functions of libraries, and that change.

    `transformers.training_args.TrainingArguments.use_liger_kernel` names one: module, class or
    function, argument. A dataclass has the value before its `__post_init__` reads it, and so have
    its subclasses, whose constructors do not call that of their base.
    """

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
            replace(owner, target, partial(way, (name, argument, value)))

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


def main() -> None:
    """Run the script or module that the command line names."""
    plan, *words = sys.argv[1:]
    is_module = words[0] == "-m"
    name, *arguments = words[1:] if is_module else words
    given = ScriptRun(Plan.from_json(plan)).start(arguments)
    if is_module:
        run_module(name, given)
    else:
        run_script(name, given)


def run_call(script: Script, path: str, folder: TrialFolder) -> None:
    """Run the call of a script or module, whose file is `path`, where it is to run.

    It gets changed copies of its config files, in the trial's folder. Its errors are its own.
    """
    arguments = with_copies(script.arguments, script.edits, folder.path)
    sources = str(Path.cwd())
    if script.workdir is not None:
        os.chdir(script.workdir)
    if script.module is None:
        run_script(path, arguments)
    else:
        run_module(script.module, arguments, sources)


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run the file `path` as `__main__`.

    Side effects: replaces `sys.modules["__main__"]` and `sys.argv`; puts the folder in `sys.path`.
    """
    place = str(Path(path).absolute())
    module = ModuleType("__main__")
    module.__loader__ = SourceFileLoader("__main__", place)
    module.__file__ = place
    module.__dict__["__cached__"] = None
    sys.argv[:] = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    _execute(compile(Path(path).read_bytes(), place, "exec", dont_inherit=True), module)


def run_module(name: str, arguments: Sequence[str], folder: str | None = None) -> None:
    """Run a module, or a package's `__main__`, as `python -m` does.

    Modules are looked for in `folder` first; default: the working directory. Side effects: as those
    of `run_script`, with that folder.

    Raises:
        SystemExit: there is no such module.
    """
    sys.argv[:] = ["-m", *arguments]
    sys.path.insert(0, folder or str(Path.cwd()))
    spec = _spec_of(name)
    module = importlib.util.module_from_spec(spec)
    module.__name__ = "__main__"
    sys.argv[0] = str(spec.origin)
    code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    _execute(code, module)


def _spec_of(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a module that the package itself imports is missing
        spec = None
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise SystemExit(f"{sys.executable}: No module named {name}")
    return spec


def is_run_by_workers(start_method: str | None = None) -> bool:
    """Return True if a worker process would run the whole script again before it does its work.

    Args:
        start_method: start method of the workers; None stands for the default of `multiprocessing`.
    """
    own = multiprocessing.get_start_method(allow_none=True)  # does not fix the default
    if (start_method or own or multiprocessing.get_all_start_methods()[0]) == "fork":
        return False
    main = sys.modules["__main__"]
    # Workers do not import a package's __main__ again.
    if getattr(getattr(main, "__spec__", None), "name", "").endswith("__main__"):
        return False
    try:
        source = Path(getattr(main, "__file__", None) or "").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return re.search(r"^if\b.*\b__name__\b", source, re.MULTILINE) is None


def _execute(code: CodeType, module: ModuleType) -> None:
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    exec(code, module.__dict__)  # noqa: S102 - the script that the user asked to run
