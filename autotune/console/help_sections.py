"""Sections of a command's help, so that a person finds the few options that they need."""

from __future__ import annotations

import click

SECTIONS = {
    "What is searched, and for how long": (
        *("space", "time_budget", "trials", "objective", "run_samples", "run_epochs", "unit"),
        *("baseline", "deterministic", "dry_run"),
    ),
    "A training script": (
        *("as_module", "maps", "preset", "metric_regex", "metric_mode", "only", "workdir"),
        "python",
    ),
    "Accuracy and memory": (
        *("accuracy_tolerance", "min_accuracy", "accuracy_samples", "effective_batch"),
        *("lr_scaling", "memory_limit", "memory_headroom"),
    ),
    "Devices and processes": (
        *("device", "devices", "nproc_per_node", "launch", "fresh_data"),
        *("trial_timeout", "max_failures"),
    ),
    "The study and its answer": (
        *("study", "storage", "out", "new_study", "warm_start", "sampler", "seed"),
        *("as_json", "progress"),
    ),
}
"""Title to the names of options, in their order there. `SectionedCommand` shows others last."""


class SectionedCommand(click.Command):
    """A command with many options, which its help lists in `SECTIONS`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        records = {
            str(one.name): record
            for one in self.get_params(ctx)
            if isinstance(one, click.Option) and (record := one.get_help_record(ctx)) is not None
        }
        for title, names in SECTIONS.items():
            rows = [records.pop(name) for name in names if name in records]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        with formatter.section("Other options"):
            formatter.write_dl(list(records.values()))
