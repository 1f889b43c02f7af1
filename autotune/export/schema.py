"""JSON Schemas of the files that people write and read: best.yaml, and search spaces.

Editors and other programs check files with them. autotune's own readers check more, such as
settings that contradict each other, and say the line.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from autotune.configuration.best_config import BestConfig
from autotune.configuration.search_space import shipped_spaces
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import AnyPlain, Effect, Integers, Knob, OneOf
from autotune.knobs.own import KINDS, OwnKnob

Schema = dict[str, Any]
Kind = Literal["best", "space"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NOTHING: Schema = {}
_COUNT: Schema = {"type": "integer", "minimum": 1}


def schema(kind: Kind) -> Schema:
    """Return the JSON Schema of best.yaml or of a search space."""
    return {"$schema": _DIALECT, **(best_schema() if kind == "best" else space_schema())}


def best_schema() -> Schema:
    """Return the schema of best.yaml: that of its classes, with each knob's legal values."""
    found = BestConfig.model_json_schema()
    parts = found["$defs"]
    for part in (found, parts["Baseline"]):
        part["properties"]["config"] = {"$ref": "#/$defs/Settings"}
    settings = _closed({knob.name: _value(knob) for knob in ALL_KNOBS})
    own = {rf"^{kind}\.": _legal(OwnKnob(kind, "")) for kind in KINDS}
    parts["Settings"] = {**settings, "patternProperties": own}
    return found | {"title": "autotune best.yaml"}


def space_schema() -> Schema:
    """Return the schema of a search space: its words, and for each knob its values to try."""
    words = {
        "about": {"type": "string", "description": "One sentence for `autotune spaces`."},
        "portable": {
            "type": "boolean",
            "description": "true: drop values that a machine cannot run; false: refuse them.",
        },
        "trials": {**_COUNT, "description": "Default number of trials."},
        "seconds": {**_COUNT, "description": "Default time budget in seconds."},
        "first": {
            "enum": list(shipped_spaces()),
            "description": "Space whose values are tried first, for its own seconds or trials.",
        },
    }
    knobs = {knob.name: _values(knob) for knob in ALL_KNOBS}
    own: Schema = {kind: _own_section(OwnKnob(kind, "")) for kind in KINDS}
    return {"title": "autotune search space", **_closed({**words, **knobs, **own})}


def _own_section(knob: OwnKnob) -> Schema:
    """Return the schema of a section of the user's own knobs: each name with its values to try."""
    listed = _values(knob)["anyOf"]
    told = {"baseline": _legal(knob), "effect": {"enum": list(get_args(Effect))}}
    among = _closed({"values": {"anyOf": listed}, **told}, "values")
    choice = {"anyOf": [*listed, among, _range(told)]}
    return {"type": "object", "additionalProperties": choice}


def _values(knob: Knob) -> Schema:
    """Return the schema of the values to try: a list, for numbers also a range."""
    listed = _listed(_legal(knob))
    has_range = isinstance(knob.values, Integers | AnyPlain)
    choice = {"anyOf": [listed, _range()]} if has_range else listed
    return {"description": knob.summary, **choice}


def _listed(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1, "uniqueItems": True}


def _value(knob: Knob) -> Schema:
    return {"description": knob.summary, "default": knob.default, **_legal(knob)}


def _legal(knob: Knob) -> Schema:
    match knob.values:
        case OneOf(options):
            return {"enum": list(options)}
        case Integers(low, high, nullable):
            types = ["integer", "null"] if nullable else "integer"
            return {"type": types, "minimum": low, "maximum": high}
        case AnyPlain(only_text):
            plain = ["string", "null"] if only_text else ["string", "number", "boolean", "null"]
            return {"type": plain}


def _range(told: Schema = _NOTHING) -> Schema:
    """Return the schema of {low, high, step} and {low, high, log2: true}, with further keys."""
    bounds = {"low": {"type": "integer"}, "high": {"type": "integer"}}
    steps = _closed({**bounds, **told, "step": _COUNT, "log2": {"const": False}}, *bounds)
    powers = _closed({**bounds, **told, "log2": {"const": True}}, *bounds, "log2")
    return {"anyOf": [steps, powers]}


def _closed(properties: Schema, *required: str) -> Schema:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }
