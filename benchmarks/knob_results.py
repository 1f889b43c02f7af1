"""Results of `benchmarks.knobs`: the worth of each turn, the file that keeps it, and its tables."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from autotune.process.common.trial_folder import write_atomically
from autotune.values.machine import Machine
from benchmarks.knob_turns import TURNS, Turn
from benchmarks.medians import log_median, median_interval

DEEP = "char_transformer, 8 blocks"
NAMES = (
    *("digits_cnn", "photos_jpeg", "char_transformer", "chirp_gru", "tabular_mlp"),
    *("pendulum_ode", DEEP),
)
# A turn whose every ratio of two rounds or more lies below this is not timed further.
HOPELESS, FEWEST_ROUNDS = 0.95, 2


@dataclass
class Worth:
    """Ratios of a turn in one study, or the reason why it has none."""

    ratios: list[float] = field(default_factory=list)
    """Samples per second with the turn over those without it, one value a round."""
    disturbed: int = 0
    """Number of rounds that count although another program disturbed them."""
    obstacle: str = ""
    failure: str = ""
    on_gpu: bool = False
    """True if the obstacle is that this machine has no GPU."""
    batch: float | None = None
    """Factor on the batch size that the freed memory permits."""

    def wants(self, rounds: int) -> bool:
        """Return whether it is worth another round, where `rounds` are planned."""
        if self.obstacle or self.failure or len(self.ratios) >= rounds:
            return False
        return len(self.ratios) < FEWEST_ROUNDS or max(self.ratios) >= HOPELESS

    @property
    def cell(self) -> str | None:
        """The cell of the table; None as long as nothing is known."""
        if self.ratios:
            return self._measured
        if self.obstacle:
            return "not measured" if self.on_gpu else "-"
        return "fails" if self.failure else None

    @property
    def why_not(self) -> str:
        """Why it was not measured; empty if it was, if only on another machine, or is not known."""
        return "" if self.ratios else self.obstacle or self.failure

    @property
    def _measured(self) -> str:
        low, high = median_interval(self.ratios)
        spread = f" ({low:.2f} to {high:.2f})" if len(self.ratios) > 1 else ""
        batch = "" if self.batch is None else f", batch_size x {self.batch:g}"
        return f"{log_median(self.ratios):.2f}{spread}{batch}"


@dataclass
class KnobResults:
    """Results so far, and the file that keeps it."""

    path: Path
    worths: dict[str, dict[str, Worth]]
    circumstances: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> KnobResults:
        """Read what an earlier call has left; nothing if there was none."""
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        worths = {
            study: {label: Worth(**fields) for label, fields in turns.items()}
            for study, turns in kept.get("worths", {}).items()
        }
        return cls(path, worths, {"loads": kept.get("loads", []), "machine": kept.get("machine")})

    def of(self, study: str, turn: Turn) -> Worth:
        """Return what is known of a turn in a study."""
        return self.worths.setdefault(study, {}).setdefault(turn.label, Worth())

    def forget(self, study: str, turns: Sequence[Turn]) -> None:
        """Forget these turns in a study."""
        for turn in turns:
            self.worths.get(study, {}).pop(turn.label, None)

    def note(self, machine: Machine, is_timed: bool) -> None:
        """Note the machine beside those of earlier calls, and its load now if it is to time."""
        name, torch = machine.host.cpu_name, machine.torch.partition("+")[0]
        here = f"{machine.host.usable_cores} cores of an {name}, torch {torch}, CPU"
        known = (self.circumstances["machine"] or "").split("; ")
        machines = [one for one in known if one and one != here]
        self.circumstances["machine"] = "; ".join([*machines, here])
        if is_timed:
            self.circumstances["loads"].append(round(os.getloadavg()[0], 1))

    def write(self) -> None:
        """Write the file, in the form that benchmarks/page.py reads."""
        known = [worth for turns in self.worths.values() for worth in turns.values()]
        rounds = max((len(worth.ratios) for worth in known), default=0)
        worths = {
            study: {label: asdict(worth) for label, worth in turns.items()}
            for study, turns in self.worths.items()
        }
        fields = {
            "title": "Each setting changed by itself, on a CPU",
            "about": "Samples per second with the knob turned over those of the study's own "
            "settings, in fresh processes that take turns: the median ratio of the rounds and its "
            f"interval. {_certainty(rounds)} A value whose first two ratios "
            "lie below 0.95 has no further rounds. `not measured`: only a GPU can tell; "
            "`-`: cannot be turned, for the reason in the last column. Seconds of compiling do not "
            "count here.",
            "command": "python -m benchmarks.knobs",
            **({"recorded": time.strftime("%Y-%m-%d")} if rounds else {}),
            "machine": self.circumstances["machine"],
            "load": _spread(self.circumstances["loads"]),
            **table(self.worths, NAMES),
            "notes": f"`{DEEP}` is char_transformer with eight blocks and a `checkpoint(model)`, "
            "for the knobs that need them. "
            "activation_checkpointing has the largest batch that needs no more memory than "
            "without it. `optimizer_impl=forloop` is what PyTorch chooses on a CPU: its row is "
            "the noise. Rounds that count although another program disturbed them: "
            f"{sum(worth.disturbed for worth in known)}.",
            "loads": self.circumstances["loads"],
            "worths": worths,
        }
        write_atomically(self.path, json.dumps(fields, indent=1, ensure_ascii=False) + "\n")


Worths = Mapping[str, Mapping[str, Worth]]
"""By study and label of a turn."""


def table(worths: Worths, names: Sequence[str]) -> dict[str, Any]:
    """Return columns and rows of the table: a row a turn, a column a study, and the reasons."""
    shown = [turn for turn in TURNS if not turn.is_dear or any(_cells(worths, names, turn))]
    rows = [
        [turn.label, *_cells(worths, names, turn), _reasons(worths, names, turn)] for turn in shown
    ]
    return {"columns": ["changed by itself", *names, "why not"], "rows": rows}


def _cells(worths: Worths, names: Sequence[str], turn: Turn) -> list[str | None]:
    return [worth.cell for worth in _worths_of(worths, names, turn)]


def _reasons(worths: Worths, names: Sequence[str], turn: Turn) -> str | None:
    """Return the reasons of a row, each with the studies that it holds for unless it is all."""
    found: dict[str, list[str]] = {}
    for name, worth in zip(names, _worths_of(worths, names, turn), strict=True):
        if reason := worth.why_not:
            found.setdefault(reason, []).append(name)
    if not found:
        return None
    return "; ".join(_told(reason, where, len(names)) for reason, where in found.items())


def _told(reason: str, where: Sequence[str], studies: int) -> str:
    text = reason.partition("\n")[0].replace("|", "/")
    return text if 2 * len(where) >= studies else f"{', '.join(where)}: {text}"


def _worths_of(worths: Worths, names: Iterable[str], turn: Turn) -> Iterator[Worth]:
    return (worths.get(name, {}).get(turn.label, Worth()) for name in names)


def write_compile_seconds(
    path: Path, seconds: Mapping[str, Mapping[str, Sequence[float]]], results: KnobResults
) -> None:
    """Add studies to the second table: seconds of each process by study and scope."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
    rows = {row[0]: row for row in kept["rows"]}
    for name, by_scope in seconds.items():
        whole, blocks = (median(by_scope[scope]) for scope in ("whole", "blocks"))
        rows[name] = [name, round(whole, 1), round(blocks, 1), round(whole / blocks, 2)]
    fields = {
        "title": "Compiling the whole model or its repeated blocks",
        "about": "Seconds that torch.compile takes in a fresh process with an empty cache: the "
        "median of two processes. Only a model with three or more blocks of one class has "
        "repeated blocks. The ratio of their speeds once compiled stands in the table above, in "
        "the row of compile_scope.",
        "command": "python -m benchmarks.knobs --knobs compile_scope",
        **({"recorded": time.strftime("%Y-%m-%d")} if rows else {}),
        "machine": results.circumstances["machine"],
        "load": _spread(results.circumstances["loads"]),
        "columns": ["study", "whole, s", "blocks, s", "whole over blocks"],
        "rows": list(rows.values()),
    }
    write_atomically(path, json.dumps(fields, indent=1, ensure_ascii=False) + "\n")


def _certainty(rounds: int) -> str:
    if not rounds:
        return "No round was timed yet."
    share = 100 * (1 - 2 * 0.5**rounds)
    return f"At most {rounds} rounds, whose range holds the true median with {share:.0f} %."


def _spread(loads: Sequence[float]) -> str:
    if not loads:
        return "not known"
    least, most = min(loads), max(loads)
    return f"{least}{f' to {most}' if most > least else ''} before each study"
