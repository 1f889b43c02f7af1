"""Run a script or a module as `python` would: same `__main__`, arguments and import path.

`runpy` is not used, because it removes `__main__` when the script has ended. Exit handlers and
threads of the script may still pickle objects from there.
"""

from __future__ import annotations

import builtins
import importlib.util
import multiprocessing
import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from autotune.calling.config_file import with_copies
from autotune.configuration.script import Script
from autotune.process.common.trial_folder import TrialFolder


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

    Side effects: replaces `sys.modules["__main__"]` and `sys.argv`; puts the file's folder in front
    of `sys.path`.
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
