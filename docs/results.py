"""Write the tables of results from the files in `benchmarks/results`.

    python docs/results.py

README gets every workload in one table, docs/results.md the repeated searches and the details. Each
row is a recorded search, or several.
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
_NO_RESULT = "none (exit 9)"
_MEAN_SINCE = "2026-11-29"
"""The day since which speed is the mean of all steps; older records have medians of blocks."""


def main() -> None:
    """Replace the tables of both pages."""
    for page, tables in pages().items():
        page.write_text(with_tables(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


def pages() -> dict[Path, str]:
    """Return the tables of each page as Markdown."""
    return {DOCS.parent / "README.md": searches(), DOCS / "results.md": others()}


def with_tables(page: str, tables: str) -> str:
    """Return a page with these tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{tables}{END}{rest.partition(END)[2]}"


def searches() -> str:
    """Return the table of all searched workloads, and which records are older than the mean."""
    rows = [*_scripts(), *_studies(), *_again(), *_gpu_searches()]
    table = _table(("training", "judged by", "result", "control"), iter(rows))
    return f"{table}\n\n{_older()}\n"


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
        _table(("study", "judged by", "seeds 0, 1, 2", _CONTROLS), _seeds()),
        "## A training loop under the result",
        f"Each study was searched as a model.py in the space `quick` ({own_loop['recorded']}, 150 "
        "s, on a CPU without bfloat16). A hand-written training loop then ran with the result:",
        _table(("study", "judged by", "result", "loop reached"), _loops(own_loop)),
        "## One H200",
        "Searches on made-up images (32 pixels for ResNet-18, 224 for ResNet-50) and text "
        "(2026-11-26 and 27, 90 to 270 s, torch 2.11). Independent code timed four of the results:",
        _table(
            ("training", "judged by", "result", "independent code", "result over TF32"),
            _gpu(_read("h200")),
        ),
        _older(),
    ]
    return "\n\n".join(parts) + "\n"


def _again() -> Iterator[Sequence[str]]:
    """Yield a row for each workload that was searched again by the mean."""
    repeats = _read("repeat")
    column = repeats["columns"].index("in common rounds")
    for workload in dict.fromkeys(row[0] for row in repeats["rows"]):
        name = workload.removeprefix("train.py ")
        kind = "model.py" if name == workload else "script"
        found = ", ".join(row[column] for row in repeats["rows"] if row[0] == workload)
        yield f"`{name}`, {kind}, again", _short(_judge(name, kind)), found, "-"


def _scripts() -> Iterator[Sequence[str]]:
    zoo = _read("zoo")
    for row in zoo["rows"]:
        one = dict(zip(zoo["columns"], row, strict=True))
        controls = "/".join(
            one[name].partition(" ")[0] for name in ("bf16", "compiled", "batch x 2")
        )
        yield f"`{one['script']}`", _short(one["judged by"]), one["answer"], controls


def _studies() -> Iterator[Sequence[str]]:
    """Yield a row for each example study and kind: the speed-ups of three seeds."""
    for name, kind, found in _three_seeds():
        results = ", ".join(each.partition(" (")[0] for each in found)
        results = results.replace("none", "exit 9")
        yield f"`{name}`, {kind}", _short(_judge(name, kind)), results, _controls(name, "/")


def _gpu_searches() -> Iterator[Sequence[str]]:
    """Yield a row for each training on the H200, of all searches of it."""
    gpu = _read("h200")
    rows = [dict(zip(gpu["columns"], row, strict=True)) for row in gpu["rows"]]
    for name in dict.fromkeys(row["training"] for row in rows):
        ran = [row for row in rows if row["training"] == name]
        judges = "; ".join(dict.fromkeys(_short(row["judged by"]) for row in ran))
        results = ", ".join(row["answer"].replace(_NO_RESULT, "exit 9") for row in ran)
        tf32 = f"TF32 {ran[0]['over TF32'].partition('x')[0]}" if ran[0]["off"] else "-"
        off = f"; {ran[0]['off'].partition(':')[0]} off" if ran[0]["off"] else ""
        yield name, judges, results, f"{tf32}{off}"


def _short(judge: str) -> str:
    """Return a quality metric without its seeds, its reason and what its name need not say."""
    judge = judge.partition(",")[0].partition(":")[0].removesuffix(" only")
    return judge.removeprefix("printed ").removeprefix("training ")


def _older() -> str:
    """Return which records are older than the present estimate of speed, from their own days."""
    days = {name: _read(name)["recorded"] for name in ("zoo", "script_or_model", "knobs")}
    gpu = _read("h200")
    days["h200"] = max(row[gpu["columns"].index("day")] for row in gpu["rows"])
    days["reproduction"] = _read("reproduction")["recorded"]
    assert max(days.values()) < _MEAN_SINCE <= _read("repeat")["recorded"], days
    return (
        f"Only the repeated searches ({_read('repeat')['recorded']}) used the present estimate of\n"
        "speed, the mean over all steps. All others are older."
    )


def _repeats(repeats: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    columns = [repeats["columns"].index(one) for one in ("claimed", "in common rounds", "seconds")]
    for name in dict.fromkeys(row[0] for row in repeats["rows"]):
        runs = [row for row in repeats["rows"] if row[0] == name]
        yield f"`{name}`", *(", ".join(run[column] for run in runs) for column in columns)


def _seeds() -> Iterator[Sequence[str]]:
    """Yield a row for each study and kind, of the three searches that are the newest."""
    for name, kind, found in _three_seeds():
        yield f"`{name}`, {kind}", _judge(name, kind), ", ".join(found), _controls(name, " / ")


def _three_seeds() -> Iterator[tuple[str, str, list[str]]]:
    both = _read("script_or_model")
    for name in dict.fromkeys(row[0] for row in both["rows"]):
        seeds = [row for row in both["rows"] if row[0] == name and row[1] in ("0", "1", "2")]
        for kind in ("script", "model.py"):
            found = (row[both["columns"].index(kind)] for row in seeds)
            yield name, kind, [_NO_RESULT if one.startswith("no answer") else one for one in found]


def _judge(study: str, kind: str) -> str:
    return "training loss" if kind == "script" else _QUALITY[study]


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


def _controls(study: str, separator: str) -> str:
    """Return the speed of each setting by hand over that of the study's own settings."""
    knobs = _read("knobs")
    column, rows = knobs["columns"].index(study), {row[0]: row for row in knobs["rows"]}
    return separator.join(rows[name][column].partition(" ")[0] for name in _BY_HAND)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _table(columns: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = (f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join([f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *lines])


if __name__ == "__main__":
    main()
