"""Compare what the two rules for the allowed loss of quality leave of each table.

    python -m benchmarks.tolerance [TABLE ...]

By the default rule, the allowed loss is what was asked: 1 % of the quality, and of a loss 1 % of
what training gained. `noise` widens it to the spread of the baseline over seeds. A training is
accurate if all recorded seeds together, paired with the baseline's, show that its loss is allowed.
For each rule the table has the allowed loss, the accurate trainings, and the best rate that is left
as a share of the best one under `noise`. The last columns have the trainings that a search accepts
after three or six seeds, for which each look needs more, and those of the others that twelve seeds
may accept. No process is started.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from autotune.configuration.constraints import Tolerance
from autotune.configuration.training_config import TrainingConfig
from benchmarks import synthetic
from benchmarks.search import (
    TOLERANCE,
    accurate,
    allowed_loss,
    decided,
    feasible_rates,
    recorded_tables,
)
from benchmarks.search import table_of as read
from benchmarks.table import Table

NOISE = replace(TOLERANCE, widened=True)


def main() -> None:
    """Print a row for each table."""
    parser = argparse.ArgumentParser()
    made = [w.__name__ for w in (*synthetic.TUNED_ON, *synthetic.DECEPTIVE, *synthetic.HELD_OUT)]
    parser.add_argument("tables", nargs="*", default=[*recorded_tables(), *made])
    columns = ["table", "allowed: noise, asked", "trainings", "accurate: noise, asked", "best left"]
    print("| " + " | ".join([*columns, "by looks", "open"]) + " |")
    print("|---|---|---|---|---|---|---|")
    for name in parser.parse_args().tables:
        print(row(name, read(name)), flush=True)


def row(name: str, table: Table) -> str:
    """Return the row of a table."""
    before, now = best(table, NOISE), best(table, TOLERANCE)
    allowed = ", ".join(f"{allowed_loss(table, rule):.4f}" for rule in (NOISE, TOLERANCE))
    count = ", ".join(str(len(set(accurate(table, rule)))) for rule in (NOISE, TOLERANCE))
    left = f"{100 * now[1] / before[1]:.1f} %" + ("" if now[0] == before[0] else ", another")
    own, found = table.baseline.quality_key(), list(decided(table))
    looks = sum(key == own or decision == "accept" for key, decision, _ in found)
    coming = sum(key != own and decision == "undecided" and may for key, decision, may in found)
    return f"| {name} | {allowed} | {len(table.probed)} | {count} | {left} | {looks} | {coming} |"


def best(table: Table, rule: Tolerance) -> tuple[TrainingConfig, float]:
    """Return the fastest feasible configuration and its samples/s."""
    rates = feasible_rates(table, rule)
    fastest = max(rates, key=lambda config: rates[config])
    return fastest, rates[fastest]


if __name__ == "__main__":
    main()
