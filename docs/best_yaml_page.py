"""Write docs/reference/best-yaml.md from the classes of the file.

    python docs/best_yaml_page.py > docs/reference/best-yaml.md

A field's meaning is the text below it in its class, that of a section the first line of its class.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml

from autotune.configuration.best_config import BestConfig
from autotune.configuration.evidence import Part
from autotune.values.strict_yaml import dump

RECORDED = Path(__file__).parents[1] / "studies" / "digits_cnn" / "recorded_best.yaml"

_HEAD = """\
# best.yaml

The result of a search, with the evidence for every claim. It is readable without autotune.
`make docs` writes this page.

```yaml
{example}
```

This is the file of a search of `studies/digits_cnn`, shortened.

- A margin at or below 0 holds, as in Optuna.
- Outside of settings, null is not written: the field is left out.
- If `config` equals `evidence.baseline.config`, the result is "keep your settings".
- `needs_full_run: true` says that a changed setting can change the trained model, and that only
  short trainings were compared. Check one full training.
- Speeds come from the confirmation. Exceptions are `phases`, timed before the trials, and settings
  that were kept without any rounds.
- You may edit `config`. `evidence.changed` keeps what was measured, so that `run`, `compare`,
  `export`, `report` and `autotune.load` name what was not. `autotune run` then leaves out settings
  that change rounding, unless it has `--allow-numerics`.
- `autotune.load` compares `machine`, `model_sha256` and `imports`, the files of yours that the
  model imports, with what it finds.

`autotune check best.yaml` names every fault by line and column.
`autotune.load("best.yaml").answer` is the file as an object with these fields.
"""

_SPEED = dict.fromkeys(("samples_per_second", "ci95"))
_SHOWN: dict[str, Any] = {
    "autotune": None,
    "config": dict.fromkeys(("batch_size", "num_workers", "amp_dtype", "channels_last")),
    "evidence": {
        "objective": None,
        "baseline": _SPEED,
        "best": _SPEED,
        "speedup": dict.fromkeys(("ratio", "ci95", "rounds")),
    },
    "constraints": {
        "memory": dict.fromkeys(("peak_bytes", "limit_bytes", "margin")),
        "accuracy": dict.fromkeys(("metric", "baseline", "best", "margin", "seeds")),
    },
    "machine": dict.fromkeys(("device", "cores", "torch", "python")),
    "provenance": dict.fromkeys(("study", "trial", "model", "created")),
}


def best_yaml_page() -> str:
    """Return the page as Markdown."""
    recorded = yaml.safe_load(RECORDED.read_text(encoding="utf-8"))
    example = "\n".join(_excerpt(recorded, _SHOWN))
    return "\n".join([_HEAD.replace("{example}", example), *_sections(BestConfig, "")])


def _excerpt(data: Mapping[str, Any], shown: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield the lines of the parts that `shown` names; three dots stand for the others."""
    for name, inner in shown.items():
        if inner is None:
            yield indent + dump({name: data[name]}).strip()
        else:
            yield f"{indent}{name}:"
            yield from _excerpt(data[name], inner, indent + "  ")
    if data.keys() - shown.keys():
        yield f"{indent}..."


def _sections(part: type[Part], path: str) -> Iterator[str]:
    """Yield the section of a part, then those of its parts."""
    texts = _texts(part)
    yield f"## {path}\n\n{_as_yaml(_first(part))}\n" if path else "## All fields\n"
    inner = {name: _part_in(field.annotation) for name, field in part.model_fields.items()}
    for name, field in part.model_fields.items():
        within = inner[name]
        told = f": {_as_yaml(texts[name])}" if name in texts else ""
        yield f"- `{name}` ({_value(field.annotation)}){told}"
    yield ""
    for name, within in inner.items():
        if within is not None:
            yield from _sections(within, f"{path}.{name}".lstrip("."))


def _texts(part: type[Part]) -> dict[str, str]:
    """Return the text below each field of a class."""
    body = ast.parse(inspect.getsource(part)).body[0].body  # type: ignore[attr-defined]
    return {
        field.target.id: text.value.value
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def _first(part: type[Part]) -> str:
    return (part.__doc__ or "").partition("\n\n")[0].strip()


def _as_yaml(text: str) -> str:
    """Return a docstring as a line about the file, in which None is null."""
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))


def _part_in(annotation: Any) -> type[Part] | None:
    """Return the part that a field holds, by itself or in a list; None for plain values."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return annotation
    return next(filter(None, map(_part_in, get_args(annotation))), None)


def _value(annotation: Any) -> str:
    """Return the kind of a value in words."""
    kind, inner = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        return _value(inner[0])
    if kind is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if kind is types.UnionType or str(kind) == "typing.Union":
        return " or ".join(_value(each) for each in inner)
    if kind is dict:
        return "mapping"
    if kind is tuple:
        return "pair" if inner == (float, float) else "list"
    plain = {int: "integer", float: "number", str: "text", bool: "boolean"}
    plain |= {types.NoneType: "null"}
    return plain.get(annotation, "section")


if __name__ == "__main__":
    sys.stdout.write(best_yaml_page())
