"""JSON, YAML and databases as lines of text that can be compared.

Floats are rounded to seven significant digits, because the last ones depend on the processor. What
differs from run to run is masked.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

_DIGITS = 7
_ZERO = 1e-9
"""Absolute value below which a float is rounding error."""
_MASKED = ("created", "provenance.autotune")
"""Ends of places that hold the time, or a version."""
_OF_STUDY = "JOIN studies USING (study_id)"
_OF_TRIAL = "JOIN trials USING (trial_id) JOIN studies USING (study_id)"
_QUERIES = {
    "direction": f"SELECT study_name, json_quote(direction) FROM study_directions {_OF_STUDY}",
    "study_user": f"SELECT study_name, key, value_json FROM study_user_attributes {_OF_STUDY}",
    "study_system": f"SELECT study_name, key, value_json FROM study_system_attributes {_OF_STUDY}",
    "state": f"SELECT study_name, number, json_quote(state) FROM trials {_OF_STUDY}",
    "param": f"SELECT study_name, number, param_name, json_quote(param_value)"
    f" FROM trial_params {_OF_TRIAL}",
    "choices": f"SELECT study_name, number, param_name, distribution_json"
    f" FROM trial_params {_OF_TRIAL}",
    "value": f"SELECT study_name, number, json_quote(value) FROM trial_values {_OF_TRIAL}",
    "trial_user": f"SELECT study_name, number, key, value_json"
    f" FROM trial_user_attributes {_OF_TRIAL}",
    "trial_system": f"SELECT study_name, number, key, value_json"
    f" FROM trial_system_attributes {_OF_TRIAL}",
}
"""Query of each kind of fact: its names, and last the fact as JSON."""


def spelled(fact: object) -> str:
    """Return a fact as JSON on one line, with its floats rounded."""
    return json.dumps(_rounded(fact), ensure_ascii=False, sort_keys=True)


def leaves(fact: object, place: str = "") -> Iterator[str]:
    """Yield a line for each value of nested mappings, sorted; a list is one value."""
    if place.endswith(_MASKED):
        yield f"{place} (masked)"
    elif isinstance(fact, Mapping) and fact:
        for name in sorted(fact, key=str):
            yield from leaves(fact[name], f"{place}.{name}" if place else str(name))
    else:
        yield f"{place} {spelled(fact)}"


def database_lines(path: Path) -> Iterator[str]:
    """Yield what a study.db holds, each kind of fact sorted, without row numbers and times."""
    with closing(sqlite3.connect(path)) as database:
        for kind, query in _QUERIES.items():
            for *names, fact in sorted(database.execute(query)):
                yield from leaves(json.loads(fact), ".".join([kind, *map(str, names)]))


def _rounded(fact: object) -> object:
    match fact:
        case float():
            return float(f"{fact:.{_DIGITS}g}") if abs(fact) > _ZERO else 0.0
        case Mapping():
            return {str(name): _rounded(part) for name, part in fact.items()}
        case list() | tuple():
            return [_rounded(part) for part in fact]
        case _:
            return fact
