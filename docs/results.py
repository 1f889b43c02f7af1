"""Write the tables of results from the files in `benchmarks/results`.

    python docs/results.py

README gets the scripts, docs/results.md everything else. Each row is a recorded search, or several.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "benchmarks" / "results"
BEGIN, END = "<!-- docs/results.py writes this -->\n", "<!-- end of docs/results.py -->\n"
_BY_HAND = ("amp_dtype=bfloat16", "compile_mode=default", "batch_size x 2")
_QUALITY = {
    "digits_cnn": "`evaluate`",
    "photos_jpeg": "held-out loss",
    "char_transformer": "held-out loss",
    "tabular_mlp": "`evaluate`",
    "chirp_gru": "held-out loss",
    "pendulum_ode": "held-out loss",
}
"""Study to the quality metric of its model.py."""
_CONTROLS = "bf16 / compiled / batch x 2"


def main() -> None:
    """Replace the tables of both pages."""
    for page, tables in pages().items():
        page.write_text(with_tables(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


def pages() -> dict[Path, str]:
    """Return the tables of each page as Markdown."""
    return {DOCS.parent / "README.md": scripts(), DOCS / "results.md": others()}


def with_tables(page: str, tables: str) -> str:
    """Return a page with these tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{tables}{END}{rest.partition(END)[2]}"


def scripts() -> str:
    """Return the table of the zoo's scripts."""
    return _table(("script", "result", _CONTROLS), _scripts(_read("zoo"))) + "\n"


def others() -> str:
    """Return the tables of the example studies and of a GPU."""
    own_loop, repeats = _read("reproduction"), _read("repeat")
    parts = [
        "## The same search again",
        f"Searches with the default options ({repeats['recorded']}). Afterwards their results took "
        "turns with the original settings in twelve common rounds:",
        _table(("workload", "claimed", "in common rounds", "seconds"), _repeats(repeats)),
        "## The example studies, three seeds",
        "Each study was searched as a script and as a model.py, on 2026-11-27, in 240 s:",
        _table(("study", "quality metric", "seeds 0, 1, 2", _CONTROLS), _seeds()),
        "## A training loop under the result",
        f"Each study was searched as a model.py in the space `quick` ({own_loop['recorded']}, 150 "
        "s, on a CPU without bfloat16). A hand-written training loop then ran with the result:",
        _table(("study", "quality metric", "result", "loop reached"), _loops(own_loop)),
        "## One H200",
        "Searches on made-up images and text (2026-11-26 and 27, 90 to 270 s, torch 2.11). "
        "Independent code timed four of the results:",
        _table(
            ("training", "quality metric", "result", "independent code", "result over TF32"),
            _gpu(_read("h200")),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _scripts(zoo: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for row in zoo["rows"]:
        one = dict(zip(zoo["columns"], row, strict=True))
        controls = (one[name].partition(" ")[0] for name in ("bf16", "compiled", "batch x 2"))
        yield f"`{one['script']}`", one["answer"], " / ".join(controls)


def _repeats(repeats: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    columns = [repeats["columns"].index(one) for one in ("claimed", "in common rounds", "seconds")]
    for name in dict.fromkeys(row[0] for row in repeats["rows"]):
        runs = [row for row in repeats["rows"] if row[0] == name]
        yield f"`{name}`", *(", ".join(run[column] for run in runs) for column in columns)


def _seeds() -> Iterator[Sequence[str]]:
    """Yield a row for each study and kind, of the three searches that are the newest."""
    both = _read("script_or_model")
    for name in dict.fromkeys(row[0] for row in both["rows"]):
        seeds = [row for row in both["rows"] if row[0] == name and row[1] in ("0", "1", "2")]
        for kind, quality in {"script": "training loss", "model.py": _QUALITY[name]}.items():
            found = (row[both["columns"].index(kind)] for row in seeds)
            results = ", ".join(
                "none (exit 9)" if each.startswith("no answer") else each for each in found
            )
            yield f"`{name}`, {kind}", quality, results, _controls(name)


def _loops(own_loop: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, emitted, interval, reached, its_interval, *_, settings in own_loop["rows"]:
        if name in _QUALITY:
            kept = settings.startswith("keeps")
            result = "kept" if kept else f"{emitted} ({interval})"
            loop = "" if kept else f"{reached} ({its_interval})"
            yield f"`{name}`", _QUALITY[name], result, loop


def _gpu(gpu: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for row in gpu["rows"]:
        one = dict(zip(gpu["columns"], row, strict=True))
        off = f", {one['off']}" if one["off"] else ""
        off = off if "holds" in off or not off else f"{off} off"
        found = f"{one['independent']}{off}"
        yield one["training"], one["judged by"], one["answer"], found, one["over TF32"]


def _controls(study: str) -> str:
    """Return the speed of each setting by hand over that of the study's own settings."""
    knobs = _read("knobs")
    column, rows = knobs["columns"].index(study), {row[0]: row for row in knobs["rows"]}
    return " / ".join(rows[name][column].partition(" ")[0] for name in _BY_HAND)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _table(columns: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = (f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join([f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *lines])


if __name__ == "__main__":
    main()
