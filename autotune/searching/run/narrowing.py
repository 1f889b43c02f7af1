"""Narrow a search space by the diagnosis: leave out what cannot matter."""

from __future__ import annotations

from dataclasses import replace

from autotune.configuration.search_space import SearchSpace
from autotune.knobs.base import Value, spelled
from autotune.searching.run.diagnosis import Diagnosis


def narrowed(space: SearchSpace, diagnosis: Diagnosis) -> SearchSpace:
    """Return the space without values that cannot matter, with what to expect of others.

    The baseline stays inside.
    """
    if diagnosis.doubt:
        return space.noted([f"nothing is left out: {diagnosis.doubt}"])
    domains = dict(space.domains)
    notes = list(space.notes)
    for name, reason in diagnosis.frozen().items():
        if len(domains[name]) > 1:
            domains[name] = _own(domains[name], diagnosis.baseline[name])
            notes.append(f"{name} stays {spelled(domains[name][0])}: {reason}")
    for name, (is_useless, reason) in diagnosis.useless(domains["compile_mode"]).items():
        own = diagnosis.baseline[name]
        dropped = [value for value in domains[name] if value != own and is_useless(value)]
        if dropped:
            notes.append(f"{name}={', '.join(map(spelled, dropped))} dropped: {reason}")
        domains[name] = tuple(value for value in domains[name] if value not in dropped)
    is_full = diagnosis.baseline["amp_dtype"] is None
    return replace(
        space,
        domains=domains,
        notes=tuple(notes),
        batch_rates=diagnosis.batch_rates(domains["batch_size"]),
        launch_seconds=diagnosis.stages.launch_seconds if is_full else None,
        paying_threads=diagnosis.paying_threads,
    )


def _own(domain: tuple[Value, ...], own: Value) -> tuple[Value, ...]:
    """Return the baseline's value; the domain's first value if the knob is idle there."""
    return (own,) if own in domain else domain[:1]
