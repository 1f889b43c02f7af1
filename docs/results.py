"""Write README's tables of results from the files in `benchmarks/results`.

    python docs/results.py

Each row is a recorded search, or three with different seeds. A test compares README with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README, RESULTS = ROOT / "README.md", ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- docs/results.py writes this -->\n", "<!-- end of docs/results.py -->\n"
_BY_HAND = ("amp_dtype=bfloat16", "compile_mode=default", "batch_size x 2")
_STUDIES = {
    "digits_cnn": "`evaluate`",
    "photos_jpeg": "held-out loss",
    "char_transformer": "held-out loss",
    "tabular_mlp": "`evaluate`",
    "chirp_gru": "held-out loss",
    "pendulum_ode": "held-out loss",
}
"""Study to the quality of its model.py."""
_ALONE = "bf16 / compiled / batch x 2, alone"


def main() -> None:
    """Replace the tables in README."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}{results()}{END}{after}", encoding="utf-8")


def results() -> str:
    """Return the tables as Markdown."""
    zoo, both = _read("zoo"), _read("script_or_model")
    own_loop, gpu = _read("reproduction"), _read("h200")
    parts = [
        "**Fourteen scripts**, each written as the documentation of its library writes a training; "
        f"one search each on {zoo['recorded']}:",
        _table(("script", "judged by", "answer", _ALONE), _scripts(zoo)),
        "**The studies of this repository**, as a script and as a model.py, three seeds each "
        "(2026-11-27):",
        _table(("study", "judged by", "answers with seeds 0, 1, 2", _ALONE), _seeds(both)),
        f"**The same as a model.py in the space `quick`** ({own_loop['recorded']}, 150 s, on "
        "a CPU without bfloat16), and a training loop of one's own under the answer:",
        _table(("study", "judged by", "answer", "its own loop reached"), _loops(own_loop)),
        "**One H200**, on made-up images and text (2026-11-26 and 27, 90 to 270 s, torch 2.11); "
        "independent code timed four of the answers. One holds by the rule of this project, a "
        "distance of at most 1.5 %:",
        _table(
            ("training", "judged by", "answer", "independent code", "answer over TF32"), _gpu(gpu)
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _scripts(zoo: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for row in zoo["rows"]:
        one = dict(zip(zoo["columns"], row, strict=True))
        alone = " / ".join(
            one[name].partition(" ")[0] for name in ("bf16", "compiled", "batch x 2")
        )
        yield f"`{one['script']}`", one["judged by"], one["answer"], alone


def _seeds(both: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Yield a row for each study and kind, of the three searches that are the newest."""
    for name in dict.fromkeys(row[0] for row in both["rows"]):
        seeds = [row for row in both["rows"] if row[0] == name and row[1] in ("0", "1", "2")]
        kinds = {"script": "training loss", "model.py": _STUDIES[name]}
        for kind, judge in kinds.items():
            answers = (row[both["columns"].index(kind)] for row in seeds)
            yield f"`{name}`, {kind}", judge, ", ".join(map(_answer, answers)), _alone(name)


def _loops(own_loop: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, emitted, interval, reached, its_interval, *_, settings in own_loop["rows"]:
        if name in _STUDIES:
            kept = settings.startswith("keeps")
            answer = "kept" if kept else f"{emitted} ({interval})"
            loop = "" if kept else f"{reached} ({its_interval})"
            yield f"`{name}`", _STUDIES[name], answer, loop


def _gpu(gpu: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for row in gpu["rows"]:
        one = dict(zip(gpu["columns"], row, strict=True))
        off = f", {one['off']}" if one["off"] else ""
        off = off if "holds" in off or not off else f"{off} off"
        found = f"{one['independent']}{off}"
        yield one["training"], one["judged by"], one["answer"], found, one["over TF32"]


def _answer(text: str) -> str:
    return "none (exit 9)" if text.startswith("no answer") else text


def _alone(study: str) -> str:
    """Return the speed of each setting by hand, alone, over that of the study's own settings."""
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
