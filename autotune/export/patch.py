"""Write a result as a unified diff of the training script that was searched.

A setting is written where the script's source shows its one place: arguments of the only DataLoader
and optimizer, calls that the script makes already, the default of a flag, the statement of the
training loop that calls the model. What has no such place is named above the diff.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from autotune.calling.flag import flag_from
from autotune.configuration.best_config import BestConfig
from autotune.export.formats import Exported, left_out
from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.values.errors import UsageError

_LOADER = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "in_order")
_CALLS = {
    "num_threads": "torch.set_num_threads",
    "float32_matmul_precision": "torch.set_float32_matmul_precision",
}
_EVALUATES = re.compile(r"eval|valid|test|infer")
_OF_OPTIM = re.compile(r"(torch\.)?optim\.[A-Z]\w*")
_KERNELS: Mapping[Value, Mapping[str, Value]] = {
    "fused": {"fused": True, "foreach": None},
    "foreach": {"fused": None, "foreach": True},
    "forloop": {"fused": False, "foreach": False},
    None: {"fused": None, "foreach": None},
}


def to_patch(best: BestConfig) -> Exported:
    """Return the diff of the script of `best`; it is applied in the directory of the search.

    Raises:
        UsageError: the result is that of a model.py, or its script is not there or no Python.
    """
    path = Path(os.path.relpath(best.provenance.model))
    if path.parts[:1] == ("..",):  # git refuses a patch of files above
        raise UsageError(f"{path} is not below this directory. Write the patch in one above it.")
    if best.provenance.arguments_sha256 is None:
        raise UsageError(
            f"--format patch is for training scripts, and {path} is a model.py: call "
            "autotune.load in your loop, or write --format python."
        )
    try:
        text = path.read_bytes().decode()
        source = _Source(text, ast.parse(text))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error}. Write the patch where the search was started."
        ) from error
    except (ValueError, SyntaxError) as error:
        raise UsageError(f"{path} cannot be read: {error}. Correct the file.") from error
    placed = _place(source, best)
    new = source.edited()
    try:
        ast.parse(new)
    except SyntaxError:  # a way of writing that is not known here
        placed, new = set(), text
    own = best.evidence.baseline.config
    unchanged = {name for name, value in best.config.items() if value == own.get(name)}
    use = "git apply FILE, and git apply -R FILE to take it back"
    diff = _diff(text, new, path.as_posix())
    return Exported(diff, left_out(best, placed | unchanged), use if diff else "")


def _diff(old: str, new: str, name: str) -> str:
    """Return a unified diff as git reads it; empty without a difference."""
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (old, new))
    lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _place(source: _Source, best: BestConfig) -> set[str]:
    """Write each changed setting that has a place; return the names of those written."""
    ways: dict[str, Callable[[Value], bool]] = {
        **{name: partial(_loader_argument, source, name) for name in _LOADER},
        **{name: partial(_call_of_torch, source, call) for name, call in _CALLS.items()},
        "cudnn_benchmark": partial(_assignment, source, "torch.backends.cudnn.benchmark"),
        "optimizer_impl": partial(_optimizer_kernel, source),
        "compile_mode": partial(_compilation, source),
        "channels_last": lambda value: (
            value is True
            and source.before_optimizer("{model}.to(memory_format=torch.channels_last)")
        ),
        "amp_dtype": partial(_autocast, source, best.machine.device.partition(":")[0]),
    }
    for flag in map(flag_from, best.maps):
        if flag.only is None and flag.words:
            ways[flag.knob] = partial(_default_of, source, flag.words[0])
    return {name for name, value in best.changed.items() if name in ways and ways[name](value)}


@dataclass
class _Source:
    """A script's text, its syntax tree, and changes of the text."""

    text: str
    tree: ast.Module
    _edits: list[tuple[int, int, str]] = field(default_factory=list)

    def edited(self) -> str:
        """Return the text with all changes; those at one place in the order in which they came."""
        data = self.text.encode()
        in_order = sorted(enumerate(self._edits), key=lambda one: (one[1][0], one[0]))
        for _, (start, end, new) in in_order[::-1]:
            data = data[:start] + new.encode() + data[end:]
        return data.decode()

    def offset(self, line: int, column: int) -> int:
        """Return the number of bytes before a place; lines count from 1."""
        lines = self.text.encode().splitlines(keepends=True)
        return sum(map(len, lines[: line - 1])) + column

    def replace(self, node: ast.expr, new: str) -> None:
        """Write `new` in the place of an expression."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.offset(node.lineno, node.col_offset)
        self._edits.append((start, self.offset(node.end_lineno, node.end_col_offset), new))

    def insert(self, line: int, *new: str) -> None:
        """Write lines before a line, with its indentation."""
        at = self.offset(line, 0)
        after = self.text.encode()[at:].decode()
        indent = after[: len(after) - len(after.lstrip(" \t"))]
        self.insert_at(at, "".join(f"{indent}{one}\n" for one in new))

    def insert_at(self, offset: int, new: str) -> None:
        """Write text after so many bytes."""
        self._edits.append((offset, offset, new))

    def calls(self, *names: str) -> list[ast.Call]:
        """Return the calls of a function of one of these names, dotted or by its last part."""
        return [
            call
            for call in self.every_call()
            if not {_dotted(call.func), _last_name(call)}.isdisjoint(names)
        ]

    def every_call(self) -> list[ast.Call]:
        """Return all calls of the script."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]

    def training_loaders(self) -> list[ast.Call]:
        """Return the DataLoaders outside of evaluations; none if the script has another kind."""
        named = set(map(_last_name, self.every_call()))
        if any(name.endswith("Loader") for name in named - {"DataLoader"}):
            return []
        functions = (n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef))
        evaluations = [ast.walk(one) for one in functions if _EVALUATES.search(one.name)]
        apart = {id(node) for nodes in evaluations for node in nodes}
        return [call for call in self.calls("DataLoader") if id(call) not in apart]

    def set_argument(self, call: ast.Call, name: str, value: Value, default: Value = None) -> bool:
        """Give a call a keyword argument; the default is left out where it is not written.

        Returns:
            False, and nothing is written, if the call spreads arguments that may have it.
        """
        last = [*call.args, *(keyword.value for keyword in call.keywords)]
        spreads = any(isinstance(one, ast.Starred | ast.GeneratorExp) for one in call.args)
        if spreads or any(keyword.arg is None for keyword in call.keywords) or not last:
            return False
        known = next((keyword for keyword in call.keywords if keyword.arg == name), None)
        if known is not None:
            self.replace(known.value, repr(value))
        elif value != default:
            self.insert_at(self._after(last[-1], call), f", {name}={value!r}")
        return True

    def _after(self, last: ast.expr, call: ast.Call) -> int:
        """Return the offset behind the last argument of a call and the parentheses around it."""
        assert None not in (last.end_lineno, call.end_lineno)
        at = self.offset(last.end_lineno or 0, last.end_col_offset or 0)
        end = self.offset(call.end_lineno or 0, call.end_col_offset or 0) - 1
        closing = re.match(rb"(\s*\))*", self.text.encode()[at:end])
        return at + (closing.end() if closing else 0)

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """Return the innermost statement that has an expression."""
        holders = (one for one in ast.walk(self.tree) if isinstance(one, ast.stmt))
        inside = [one for one in holders if any(part is node for part in ast.walk(one))]
        return max(inside, key=lambda one: one.lineno)

    def after_imports(self, line: str) -> None:
        """Write a line after the imports at the top level, and import torch if need be."""
        imports = [n for n in self.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        last = max((node.end_lineno or node.lineno for node in imports), default=0)
        names = {alias.asname or alias.name for n in imports for alias in n.names}
        at = self.offset(last + 1, 0)
        is_known = "torch" in names or any("import torch\n" in new for _, _, new in self._edits)
        self.insert_at(at, f"{line}\n" if is_known else f"import torch\n{line}\n")

    def optimizer(self) -> ast.Call | None:
        """Return the only call that builds an optimizer of torch."""
        imports = [n for n in ast.walk(self.tree) if isinstance(n, ast.ImportFrom)]
        imports = [node for node in imports if node.module == "torch.optim"]
        own = {alias.asname or alias.name for node in imports for alias in node.names}
        calls = self.every_call()
        found = [c for c in calls if (n := _dotted(c.func)) in own or _OF_OPTIM.fullmatch(n)]
        return found[0] if len(found) == 1 else None

    def model(self) -> str | None:
        """Return the model as the optimizer's call names it; None if that is not known."""
        call = self.optimizer()
        match call.args[:1] if call is not None else []:
            case [ast.Call(func=ast.Attribute(value=model, attr="parameters"))]:
                name = _dotted(model)  # Lightning calls methods of `self`, not `self`
                is_wrapped = bool(self.calls("DistributedDataParallel"))
                return None if is_wrapped or name == "self" else name or None
        return None

    def before_optimizer(self, line: str) -> bool:
        """Write a line about the model before the statement that builds the optimizer."""
        call, model = self.optimizer(), self.model()
        if call is None or model is None:
            return False
        self.insert(self.statement_of(call).lineno, line.format(model=model))
        return True


def _last_name(call: ast.Call) -> str:
    return _dotted(call.func).rpartition(".")[2]


def _dotted(node: ast.expr) -> str:
    """Return a name such as torch.optim.AdamW; empty for another expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def _loader_argument(source: _Source, name: str, value: Value) -> bool:
    loaders = source.training_loaders()
    if any(len(one.args) > 2 for one in loaders):  # noqa: PLR2004 (the third one shuffles)
        return False
    if len(loaders) > 1:
        loaders = [one for one in loaders if any(map(_shuffles, one.keywords))]
    default = KNOBS[name].default
    return len(loaders) == 1 and source.set_argument(loaders[0], name, value, default)


def _shuffles(keyword: ast.keyword) -> bool:
    is_off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
    return keyword.arg == "shuffle" and not is_off


def _call_of_torch(source: _Source, name: str, value: Value) -> bool:
    own = [call.args[0] for call in source.calls(name) if call.args]
    return _only_place(source, own, f"{name}({value!r})", value)


def _assignment(source: _Source, target: str, value: Value) -> bool:
    assignments = (node for node in ast.walk(source.tree) if isinstance(node, ast.Assign))
    own = [node.value for node in assignments if target in map(_dotted, node.targets)]
    return _only_place(source, own, f"{target} = {value!r}", value)


def _only_place(source: _Source, own: list[ast.expr], line: str, value: Value) -> bool:
    """Write a value in its one place; a line of its own where the script has none."""
    if len(own) == 1:
        source.replace(own[0], repr(value))
    elif not own:
        source.after_imports(line)
    return len(own) <= 1


def _optimizer_kernel(source: _Source, value: Value) -> bool:
    call = source.optimizer()
    if call is None or value not in _KERNELS:
        return False
    return all(source.set_argument(call, *argument) for argument in _KERNELS[value].items())


def _compilation(source: _Source, mode: Value) -> bool:
    """Compile the model, or change the one `torch.compile` of the script."""
    own = source.calls("torch.compile")
    if not own:
        return mode is not None and source.before_optimizer(f"{{model}}.compile(mode={mode!r})")
    if len(own) > 1 or not own[0].args:
        return False
    if mode is not None:
        return source.set_argument(own[0], "mode", mode)
    source.replace(own[0], ast.unparse(own[0].args[0]))
    return True


def _autocast(source: _Source, device: str, dtype: Value) -> bool:
    """Put the statements of the training loop that call the model under autocast."""
    model, own = source.model(), source.calls("torch.autocast", "autocast")
    if own:
        is_off = len(own) == 1 and dtype is None
        return is_off and source.set_argument(own[0], "enabled", False, default=True)
    calling = list(_training_calls(source, model)) if model and dtype else []
    for statement in calling:
        source.insert(statement.lineno, f"with torch.autocast({device!r}, torch.{dtype}):")
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
            source.insert_at(source.offset(line, 0), "    ")
    return bool(calling)


def _training_calls(source: _Source, model: str) -> Iterator[ast.stmt]:
    """Yield the assignments that call the model in a body that itself calls backward()."""
    for holder in ast.walk(source.tree):
        body = getattr(holder, "body", None)
        simple = [one for one in body if not hasattr(one, "body")] if isinstance(body, list) else []
        names = [_called(one) for one in simple]
        if any(name.endswith(".backward") for found in names for name in found):
            for one, found in zip(simple, names, strict=True):
                if isinstance(one, ast.Assign) and model in found:
                    yield one


def _called(statement: ast.stmt) -> set[str]:
    return {_dotted(one.func) for one in ast.walk(statement) if isinstance(one, ast.Call)}


def _default_of(source: _Source, flag: str, value: Value) -> bool:
    """Write a setting as the default of the flag that carried it."""
    for call in source.calls("add_argument"):
        names = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
        default = [keyword for keyword in call.keywords if keyword.arg == "default"]
        if flag in names and default:
            source.replace(default[0].value, repr(value))
            return True
    return False
