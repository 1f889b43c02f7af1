"""Load the user's model.py and check it against the contract.

This happens in the child only. All missing and misspelt names are reported at once.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.utils.data import Dataset

from autotune.configuration.training_config import own_of_kind, setting_faults
from autotune.knobs.base import AnyPlain, Value
from autotune.knobs.own import BUILDERS, Kind, unknown_options
from autotune.values.errors import WorkloadError
from autotune.values.outcome import Signature
from autotune.values.text import did_you_mean

# name -> (the arguments it is called with, True if it is required)
_CONTRACT: Mapping[str, tuple[str, bool]] = {
    "build_model": ("()", True),
    "build_dataset": ("()", True),
    "compute_loss": ("(model, batch)", True),
    "build_optimizer": ("(parameters, **options)", False),
    "evaluate": ("(model, device)", False),
    "collate_fn": ("(samples)", False),
    "clip_gradients": ("(model)", False),
}
_BASELINE = "BASELINE"


@dataclass(frozen=True)
class Workload:
    """The functions of one model.py, and its baseline."""

    path: Path
    build_model: Callable[..., nn.Module]
    build_dataset: Callable[..., Dataset[Any]]
    compute_loss: Callable[[nn.Module, Any], Tensor]
    build_optimizer: Callable[..., Optimizer]
    evaluate: Callable[[nn.Module, Any], float] | None
    collate_fn: Callable[[list[Any]], Any] | None
    baseline: Mapping[str, Any]
    clip_gradients: Callable[[nn.Module], object] | None = None
    checkpoint: Callable[[nn.Module], object] | None = None
    """Function that wraps the parts of a model whose activations are to be computed again."""
    settings: Mapping[str, Value] = field(default_factory=dict)
    """Settings; the user's own knobs among them are arguments of the build functions."""

    def under(self, settings: Mapping[str, Value] | None) -> Workload:
        """Return the workload as it is built under settings."""
        return replace(self, settings=settings or {})

    def as_today(self, baseline: Mapping[str, Value]) -> Workload:
        """Return the workload as it is built under its BASELINE, overridden by `baseline`.

        Arguments that its functions do not take are left out: the search refuses them.
        """
        settings = {**self.baseline, **baseline}
        unknown = dict(unknown_options(settings, self.signatures()))
        return self.under({n: value for n, value in settings.items() if n not in unknown})

    def options(self, kind: Kind) -> dict[str, Value]:
        """Return the keyword arguments of the build function that knobs of a kind belong to."""
        return own_of_kind(self.settings, kind)

    @property
    def optimizer_options(self) -> bool:
        """True if build_optimizer takes options such as `fused=True`."""
        parameters = inspect.signature(self.build_optimizer).parameters.values()
        return any(p.kind is p.VAR_KEYWORD or p.name == "fused" for p in parameters)

    def signatures(self) -> dict[str, Signature]:
        """Return the signatures of build_model and build_dataset, as data."""
        return {name: _signature(name, getattr(self, name)) for name in BUILDERS.values()}


def _signature(name: str, function: Callable[..., Any]) -> Signature:
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return Signature(f"{name}(...)", {}, takes_any=True)
    parameters = signature.parameters.values()
    keywords = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return Signature(
        text=f"{name}{signature.replace(return_annotation=inspect.Signature.empty)}",
        defaults={p.name: _plain(p.default) for p in keywords},
        takes_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def _plain(default: object) -> Value:
    """Return a default of a parameter if a file can hold it, else None."""
    is_plain = type(default) in (bool, int, float, str) and not AnyPlain().fault(default)
    return default if is_plain else None  # type: ignore[return-value]


def default_optimizer(parameters: Iterator[nn.Parameter], **options: Any) -> Optimizer:
    """Return AdamW with a learning rate of 1e-3, for workloads without an optimizer."""
    return AdamW(parameters, lr=1e-3, **options)


def load_workload(path: Path) -> Workload:
    """Import a model.py and check it against the contract.

    Side effects: runs the file and sets `sys.argv` to its path alone. Puts its folder in front of
    `sys.path` and the module into `sys.modules`, so that its imports work and DataLoader workers
    find its classes by name.

    Raises:
        WorkloadError: names are missing, misspelt or of the wrong kind; all are listed.
        Exception: whatever the file itself raises.
    """
    module = _import(path)
    faults = [*_misspelt(module), *_wrong(module), *_baseline_faults(module)]
    if missing := _missing(module):
        faults = [*missing, *faults, f"read as a model.py; as a script: autotune search {path} --"]
    if faults:
        raise WorkloadError("\n".join(f"{path}: {fault}" for fault in faults))
    found = {name: getattr(module, name, None) for name in _CONTRACT}
    if found["build_optimizer"] is None:
        found["build_optimizer"] = default_optimizer
    baseline = getattr(module, _BASELINE, {})
    return Workload(
        path=path,
        baseline=baseline,
        checkpoint=_checkpoint(module),
        **found,  # type: ignore[arg-type]
    )


def _import(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]  # a file that parses arguments gets its own defaults
    # Spawned DataLoader workers import the module by its name, unless that name is taken.
    name = path.stem if path.stem not in sys.modules else f"workload_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, f"{path} is not a Python file"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _checkpoint(module: ModuleType) -> Callable[[nn.Module], object] | None:
    """Return the file's own function checkpoint(model), or None.

    Another one is no fault: files import torch's of this name, or save models by one.
    """
    function = getattr(module, "checkpoint", None)
    if not inspect.isfunction(function) or function.__module__.startswith("torch."):
        return None
    return function if _accepts(function, "(model)") else None


def _missing(module: ModuleType) -> list[str]:
    return [
        f"{name}{call} is missing.{did_you_mean(name, _own_names(module))}"
        for name, (call, needed) in _CONTRACT.items()
        if needed and not hasattr(module, name)
    ]


def _misspelt(module: ModuleType) -> list[str]:
    """Return faults for names close to an optional one, which would silently go unused."""
    optional = [name for name, (_, needed) in _CONTRACT.items() if not needed]
    optional.append(_BASELINE)
    absent = [name for name in optional if not hasattr(module, name)]
    missing = " ".join(_missing(module))
    names = [name for name in _own_names(module) if repr(name) not in missing]
    hints = ((name, did_you_mean(name, absent)) for name in names)
    return [f"{name} is not a part of a model.py.{hint}" for name, hint in hints if hint]


def _wrong(module: ModuleType) -> list[str]:
    faults = []
    for name, (call, _) in _CONTRACT.items():
        function = getattr(module, name, None)
        if function is None:
            continue
        if not callable(function):
            faults.append(f"{name} must be a function {name}{call}, not {type(function).__name__}.")
        elif not _accepts(function, call):
            hint = " Give each argument a default." if call == "()" else ""
            text = f"{name}{inspect.signature(function)}"
            faults.append(f"{text} cannot be called as {name}{call}.{hint}")
    return faults


def _accepts(function: Callable[..., Any], call: str) -> bool:
    arguments = [word for word in call.strip("()").split(", ") if word and not word.startswith("*")]
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def _baseline_faults(module: ModuleType) -> list[str]:
    baseline = getattr(module, _BASELINE, {})
    if not isinstance(baseline, dict):
        return [f"{_BASELINE} must be a dict of settings, not {type(baseline).__name__}."]
    return [f"{_BASELINE}: {fault}" for fault in setting_faults(baseline).values()]


def _own_names(module: ModuleType) -> list[str]:
    """Return the file's own functions and constants, less the names of the contract."""
    own = (
        name
        for name, value in vars(module).items()
        if (inspect.isfunction(value) and value.__module__ == module.__name__)
        or (name.isupper() and not name.startswith("_"))
    )
    return [name for name in own if name not in (*_CONTRACT, _BASELINE)]
